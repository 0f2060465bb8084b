"""Packed encoding, prefill and decode steps over slots give what the plain transformer gives."""

import random

import pytest
import torch

from nllb_cli.engine.sizes import SlotPlan
from nllb_cli.engine.slot_engine import SlotEngine
from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.transformer import Transformer
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions
from tests.reference import make_checkpoint

CPU = torch.device("cpu")
SHAPES = {
    "deep decoder": {
        "d_model": 24,
        "heads": 3,
        "ffn": 37,
        "encoder_layers": 1,
        "decoder_layers": 3,
    },
    "deep encoder": {
        "d_model": 40,
        "heads": 5,
        "ffn": 23,
        "encoder_layers": 4,
        "decoder_layers": 1,
    },
    "even": {"d_model": 32, "heads": 2, "ffn": 64, "encoder_layers": 2, "decoder_layers": 2},
}
LENGTHS = [1, 37, 5, 12, 2]
LANGUAGE = 91


@pytest.fixture(params=SHAPES)
def parameters(tmp_path, request):
    make_checkpoint(tmp_path, seed=len(request.param), is_tied=False, **SHAPES[request.param])
    return load_parameters(tmp_path, CPU, torch.float32)


def make_rows(seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(3, 97) for _ in range(n)] for n in LENGTHS]


def slot_run(parameters, beam_size=3):
    plan = SlotPlan(parameters.config, beam_size, 4, 2**28, max_batch_rows=len(LENGTHS))
    options = DecodeOptions(beam_size, early_stopping="never")
    return SlotEngine(parameters, options, 95, plan)._run_for(30)


def encode(run, rows, first_row=2):
    tokens = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
    run._model.encode(tokens, [len(row) for row in rows], first_row)


def plain_cross_keys_values(plain, rows):
    """Return each row's cross-attention keys and values. Shapes: [L, 2, S, H, D]."""
    found = []
    for row in rows:
        output = plain.encode(torch.tensor([row]), torch.tensor([len(row)]))
        found.append(plain.cross_keys_values(output)[:, :, 0].transpose(2, 3))
    return found


@pytest.mark.parametrize("first_row", [2, 19])
def test_packed_encoding_fills_the_pool(parameters, first_row):
    rows = make_rows()
    run = slot_run(parameters)
    encode(run, rows, first_row)
    start = first_row
    for row, expected in zip(
        rows, plain_cross_keys_values(Transformer(parameters), rows), strict=True
    ):
        found = run._slots.pool[start : start + len(row)]  # [S, L, 2, H, D]
        torch.testing.assert_close(found.permute(1, 2, 0, 3, 4), expected, rtol=1e-5, atol=1e-5)
        start += len(row)


def test_prefill_keeps_the_start_tokens_keys_and_values(parameters):
    rows = make_rows(1)
    run = slot_run(parameters)
    encode(run, rows)
    plain = Transformer(parameters)
    for index, row in enumerate(rows):
        cache = source_cache(plain, row, 1)
        start = torch.tensor([[parameters.config.decoder_start_id]])
        plain.decode(start, 1, cache)
        expected = cache.self_kv[:, :, 0, :, 0, 0]  # [L, 2, H, D]
        found = run._slots.pool[2 + sum(LENGTHS) + index]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def source_cache(plain, row, num_beams):
    """Return a cache of `num_beams` segments of one beam, all with this source."""
    cache = DecoderCache(plain.config, 1, like=plain.parameters.lm_head)
    output = plain.encode(torch.tensor([row]), torch.tensor([len(row)]))
    cross_kv = plain.cross_keys_values(output).expand(-1, -1, num_beams, -1, -1, -1)
    cache.set_source(cross_kv, torch.full((num_beams,), len(row)))
    return cache


def plain_hidden(plain, row, prefixes):
    """Return the decoder's output after each prefix. Shapes: prefixes [K, T]; result [K, E]."""
    cache = source_cache(plain, row, len(prefixes))
    for position in range(prefixes.shape[1]):
        hidden = plain.decode(prefixes[:, position : position + 1], position + 1, cache)
    return hidden[:, 0]


def prefixes_of(slots, slot, start_token):
    """Return what each beam of a slot has read, this step's token last. Shapes: [K, T]."""
    length = int(slots.state.length[slot])
    beams = []
    for beam in range(slots.shape.beam_size):
        rows = [*slots.state.indirection[slot, beam, 1:length].tolist(), beam]
        tokens = [int(slots.state.tokens[slot, t + 1, r]) for t, r in enumerate(rows)]
        beams.append([start_token, *tokens])
    return torch.tensor(beams)


def test_decode_steps_agree_whatever_the_beams_went_through(parameters):
    """Sources of all lengths side by side; beams swap; slots fall idle; places are compacted."""
    rows = make_rows(2)
    run = slot_run(parameters)
    plain, slots, model = Transformer(parameters), run._slots, run._model
    encode(run, rows)
    starts = [2 + sum(LENGTHS[:i]) for i in range(len(rows))]
    prefix = 2 + sum(LENGTHS)
    columns = [
        [start, len(row), prefix + i, LANGUAGE, 6 + 3 * i]
        for i, (start, row) in enumerate(zip(starts, rows, strict=True))
    ]
    entries = [5, 1, 9, 0, 3]
    slots.enqueue(entries, torch.tensor(columns, dtype=torch.int32).T, 0)
    n, K = len(rows), 3
    slots.fill(n)
    num_compared, swapped = 0, False
    for step in range(18):
        hidden = model._decoder_output(n).view(n, K, -1)
        for place, slot in enumerate(slots._slot_ids[:n].tolist()):
            entry = int(slots.state.entry[slot])
            if entry < 0:
                assert hidden[place].isfinite().all()
                continue
            prefixes = prefixes_of(slots, slot, parameters.config.decoder_start_id)
            expected = plain_hidden(plain, rows[entries.index(entry)], prefixes)
            exists = slots.state.log_prob[slot] > -1e8
            torch.testing.assert_close(
                hidden[place][exists], expected[exists], rtol=1e-5, atol=1e-5
            )
            num_compared += int(exists.sum())
            swapped |= slots.state.indirection[slot, :, 1:step].any()
        model.step(n)
        slots.compact()
    assert swapped
    assert num_compared > 60
    assert (slots.state.entry < 0).any()


def test_the_pool_keeps_what_lies_beside_a_batch(parameters):
    run = slot_run(parameters)
    run._slots.pool.fill_(7.0)
    encode(run, make_rows(), first_row=40)
    used = slice(40, 40 + sum(LENGTHS) + len(LENGTHS))
    assert (run._slots.pool[:40] == 7).all()
    assert (run._slots.pool[used.stop :] == 7).all()
    assert not (run._slots.pool[used] == 7).any()
