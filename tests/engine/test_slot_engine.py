"""The slot engine gives the plain engine's tokens, whatever shares the slots and however few."""

import math
import random

import pytest
import torch

from nllb_cli.engine import slot_engine as slot_engine_file
from nllb_cli.engine.engine import PlainEngine
from nllb_cli.engine.forward import SlotModel
from nllb_cli.engine.lane import Lane
from nllb_cli.engine.sizes import SlotPlan
from nllb_cli.engine.slot_engine import SlotEngine
from nllb_cli.engine.slots import Slots
from nllb_cli.errors import DeviceError
from nllb_cli.model.hub import BUNDLED_MODEL
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Batch
from nllb_cli.text.tokenizer import load_tokenizer
from tests.engine.parity import ListSource, make_segments, translate
from tests.reference import make_checkpoint

LANGUAGES = (91, 93)


@pytest.fixture
def parameters(tmp_path, request):
    make_checkpoint(tmp_path, seed=3, heads=2, encoder_layers=2, decoder_layers=3)
    return load_parameters(tmp_path, torch.device("cpu"), torch.float32)


def slot_engine(parameters, options, max_batch_rows=3, num_tokens=95):
    plan = SlotPlan(parameters.config, options.beam_size, 4, 2**28, max_batch_rows)
    return SlotEngine(parameters, options, num_tokens, plan)


def random_segments(num_rows, seed, longest=19, limit=24):
    rng = random.Random(seed)
    lengths = [rng.randrange(1, longest) for _ in range(num_rows)]
    rows = [[90, *(rng.randrange(4, 90) for _ in range(n)), 2] for n in lengths]
    limits = [rng.randrange(1, limit) for _ in rows]
    return make_segments(rows, LANGUAGES, limits)


def assert_same(found, expected):
    for ours, plain in zip(found, expected, strict=True):
        assert len(ours) == len(plain) == len(LANGUAGES)
        for hypothesis, other in zip(ours, plain, strict=True):
            assert hypothesis.tokens == other.tokens
            assert hypothesis.finish == other.finish
            assert math.isclose(hypothesis.score, other.score, abs_tol=1e-4)


@pytest.mark.parametrize(
    ("beam_size", "penalty", "stopping"),
    [(1, 1.0, "false"), (4, 1.0, "false"), (5, 0.0, "true"), (2, 2.0, "never")],
)
def test_equals_the_plain_engine(parameters, beam_size, penalty, stopping):
    options = DecodeOptions(beam_size, penalty, stopping)
    segments = random_segments(11, seed=beam_size)
    segments.insert(4, make_segments([[]], LANGUAGES, [9])[0])
    expected = translate(PlainEngine(parameters, options, 95), segments)
    found = translate(slot_engine(parameters, options), segments)
    assert_same(found, expected)


def test_result_does_not_depend_on_batch_mates(parameters):
    options = DecodeOptions(3)
    segments = random_segments(6, seed=7)
    together = translate(slot_engine(parameters, options, max_batch_rows=4), segments)
    alone = [translate(slot_engine(parameters, options, 1), [s])[0] for s in segments]
    assert_same(together, alone)


def test_deeper_targets_get_deeper_slots(parameters):
    """A limit over the slots' depth lets them run empty and replaces them, losing nothing."""
    options = DecodeOptions(2)
    segments = random_segments(5, seed=1)
    segments[2].max_target_tokens = 140
    engine = slot_engine(parameters, options)
    found = translate(engine, segments, rows_per_batch=2)
    assert engine.shape.max_target_tokens >= 140
    assert_same(found, translate(PlainEngine(parameters, options, 95), segments))


class PausingSource(ListSource):
    """Has its next batch only when the engine would wait for it."""

    def take(self, wait):
        return super().take(wait) if wait else None


def test_a_pause_in_the_input_holds_nothing_back(parameters):
    first, second = random_segments(2, seed=2)
    source = PausingSource([Batch([first]), Batch([second])])
    results = slot_engine(parameters, DecodeOptions(2)).translate(source)
    assert next(results)[0] is first
    assert len(source.batches) == 1
    assert [segment for segment, _ in results] == [second]


def test_entries_and_rows_all_come_back(parameters):
    engine = slot_engine(parameters, DecodeOptions(2))
    for seed in range(2):
        translate(engine, random_segments(9, seed))
    run = engine._run
    assert run._pool.num_free == run.shape.pool_rows - 2
    assert sorted(run._free_entries) == list(range(run.shape.num_entries))


def test_out_of_memory_while_encoding_halves_the_work(parameters, monkeypatch, caplog):
    options = DecodeOptions(2)
    segments = random_segments(8, seed=5)
    expected = translate(PlainEngine(parameters, options, 95), segments)
    engine = slot_engine(parameters, options)
    engine._run = engine._run_for(24)
    model = engine._run._model
    encode, sizes = model.encode, []

    def scarce(tokens, lengths, first_row):
        sizes.append(len(lengths))
        if len(lengths) > 2:
            raise torch.OutOfMemoryError("no memory left")
        encode(tokens, lengths, first_row)

    monkeypatch.setattr(model, "encode", scarce)
    assert_same(translate(engine, segments), expected)
    assert max(sizes) > 2
    assert "out of memory" in caplog.text


def test_slots_that_cannot_be_allocated_become_fewer(parameters, monkeypatch, caplog):
    """Memory that others took since the plan was made costs slots, not the run."""
    options = DecodeOptions(2)
    segments = random_segments(8, seed=6)
    asked = []

    def scarce(config, shape, like):
        asked.append(shape.num_slots)
        if shape.num_slots > 3:
            raise torch.OutOfMemoryError("no memory left")
        return Slots(config, shape, like)

    monkeypatch.setattr(slot_engine_file, "Slots", scarce)
    engine = slot_engine(parameters, options, max_batch_rows=12)
    found = translate(engine, segments)
    assert_same(found, translate(PlainEngine(parameters, options, 95), segments))
    assert asked == [12, 6, 3]
    assert caplog.messages == [f"out of memory: decoding {n} rows at a time now" for n in (6, 3)]


def test_not_even_one_slot_is_an_error_that_names_the_remedy(parameters, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(slot_engine_file, "Slots", full)
    with pytest.raises(DeviceError, match="one row at a time.*--device cpu"):
        translate(slot_engine(parameters, DecodeOptions(2), 4), random_segments(2, seed=6))


@pytest.mark.parametrize("failing_step", [1, 5, 9])
def test_out_of_memory_in_a_step_loses_nothing(parameters, monkeypatch, caplog, failing_step):
    options = DecodeOptions(3)
    segments = random_segments(8, seed=8)
    expected = translate(PlainEngine(parameters, options, 95), segments)
    step, num_steps = SlotModel.step, []

    def scarce(model, n):
        num_steps.append(n)
        if len(num_steps) == failing_step:
            raise torch.OutOfMemoryError("no memory left")
        step(model, n)

    monkeypatch.setattr(SlotModel, "step", scarce)
    assert_same(translate(slot_engine(parameters, options, 4), segments), expected)
    assert caplog.messages == ["out of memory: decoding 2 rows at a time now"]


def test_a_failed_or_abandoned_call_leaves_nothing_behind(parameters, monkeypatch):
    """What was in flight then must not come out of the next call (it is asked for again)."""
    options = DecodeOptions(2)
    first, second = random_segments(6, seed=3), random_segments(6, seed=4)
    expected = translate(PlainEngine(parameters, options, 95), second)
    engine = slot_engine(parameters, options)
    results = engine.translate(ListSource([Batch(first)]))
    next(results)
    results.close()
    assert_same(translate(engine, second), expected)

    step, num_steps = SlotModel.step, []

    def failing(model, n):
        num_steps.append(n)
        if len(num_steps) == 4:
            raise RuntimeError("broken")
        step(model, n)

    monkeypatch.setattr(SlotModel, "step", failing)
    engine = slot_engine(parameters, options)
    with pytest.raises(RuntimeError, match="broken"):
        translate(engine, first)
    assert_same(translate(engine, second), expected)


@pytest.mark.parametrize("beam_size", [1, 3, 8, 10, 11, 15, 16, 17, 31, 32])
def test_every_width_gives_the_plain_engines_tokens(parameters, beam_size):
    options = DecodeOptions(beam_size)
    segments = random_segments(4, seed=beam_size, longest=9, limit=12)
    expected = translate(PlainEngine(parameters, options, 95), segments)
    assert_same(translate(slot_engine(parameters, options), segments), expected)


def count_steps(monkeypatch, owner, engine, segment):
    """How many decode steps a segment alone takes, and its hypothesis."""
    steps = []
    step = owner.step
    with monkeypatch.context() as patch:
        patch.setattr(owner, "step", lambda *args: steps.append(1) or step(*args))
        ((found,),) = translate(engine, [segment])
    return len(steps), found


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_short_sentence_takes_no_more_steps_than_its_search(monkeypatch, beam_size):
    """The host learns late that all is done, but by no more than its lag."""
    parameters = load_parameters(BUNDLED_MODEL, torch.device("cpu"), torch.float32)
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    options = DecodeOptions(beam_size)
    num_tokens = parameters.config.vocab_size
    slots = slot_engine(parameters, options, num_tokens=num_tokens)
    plain = PlainEngine(parameters, options, num_tokens)
    for text in ("Hello.", "Where is the station?"):
        (row,) = tokenizer.encode([text], "eng_Latn")
        (segment,) = make_segments([row], (tokenizer.language_id("fra_Latn"),), [200])
        num_plain, expected = count_steps(monkeypatch, Lane, plain, segment)
        num_slots, found = count_steps(monkeypatch, SlotModel, slots, segment)
        assert found.tokens == expected.tokens
        assert found.finish == "eos"
        assert len(found.tokens) + 1 <= num_plain < 30
        assert num_slots <= num_plain + slot_engine_file._LAG + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("engine", ["plain", "slots"])
def test_large_activations_give_finite_scores_or_marked_rows(tmp_path, dtype, engine):
    """A layer of fifty times the usual size: more than float16 holds, not more than the others."""
    make_checkpoint(tmp_path, seed=3, heads=2, encoder_layers=2, decoder_layers=2)
    parameters = load_parameters(tmp_path, torch.device("cpu"), dtype)
    for layer in (parameters.encoder_layers[0], parameters.decoder_layers[0]):
        layer.fc1.weight.mul_(50)
        layer.fc2.weight.mul_(50)
    options = DecodeOptions(4)
    made = PlainEngine(parameters, options, 95)
    if engine == "slots":
        made = slot_engine(parameters, options)
    found = translate(made, random_segments(9, seed=4))
    assert [len(hypotheses) for hypotheses in found] == [len(LANGUAGES)] * 9
    for hypothesis in (h for hypotheses in found for h in hypotheses):
        if dtype != torch.float16:
            assert hypothesis.finish in ("eos", "length")
        if hypothesis.finish == "invalid":
            assert hypothesis.tokens == []
        else:
            assert math.isfinite(hypothesis.score)
