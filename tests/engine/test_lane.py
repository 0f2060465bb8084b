"""A lane's slots: gaps are closed, caches follow their beams, a broken row harms no other."""

import math

import pytest
import torch

from nllb_cli.engine.lane import Lane
from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.transformer import Transformer
from nllb_cli.model.weights import load_parameters
from tests.engine.parity import make_segments, options_of
from tests.reference import make_checkpoint

CPU = torch.device("cpu")
ROWS = [[92, *range(5, 5 + n), 2] for n in (3, 9, 1, 14, 6, 2, 11)]


@pytest.fixture
def model(tmp_path):
    make_checkpoint(tmp_path, seed=5)
    return Transformer(load_parameters(tmp_path, CPU, torch.float32))


def make_lane(model, beam_size=4, length_penalty=1.0):
    return Lane(model, options_of(beam_size, length_penalty), 97)


def jobs_of(lane, rows, limits, target_ids=(91,)):
    return lane.encode(make_segments(rows, target_ids, limits))


def run(lane, jobs, rest=()):
    """Return job to hypothesis; `rest` joins as soon as something has finished."""
    finished, rest = lane.step(jobs), list(rest)
    while lane.running or rest:
        if rest and finished:
            finished += lane.step([rest.pop()])
        else:
            finished += lane.step([])
    return {id(item.job): item.hypothesis for item in finished}


def test_segments_join_and_leave_at_different_steps(model):
    limits = [9, 3, 30, 5, 14, 2, 7]
    lane = make_lane(model)
    jobs = jobs_of(lane, ROWS, limits)
    found = run(lane, jobs[:3], jobs[3:])
    for job, row, limit in zip(jobs, ROWS, limits, strict=True):
        alone = make_lane(model)
        (other,) = jobs_of(alone, [row], [limit])
        (expected,) = run(alone, [other]).values()
        assert found[id(job)].tokens == expected.tokens
        assert found[id(job)].score == pytest.approx(expected.score, abs=1e-5)
        assert found[id(job)].finish == expected.finish


def test_one_encoding_serves_several_languages(model):
    lane = make_lane(model)
    calls = []
    encode = model.encode
    model.encode = lambda tokens, lengths: calls.append(len(tokens)) or encode(tokens, lengths)
    jobs = jobs_of(lane, ROWS[:2], [9, 9], target_ids=(91, 93, 95))
    assert calls == [2]
    assert len(jobs) == 6
    found = run(lane, jobs)
    for job, target_id in zip(jobs, (91, 93, 95) * 2, strict=True):
        alone = make_lane(model)
        (other,) = jobs_of(alone, [job.request.segment.source_tokens], [9], (target_id,))
        (expected,) = run(alone, [other]).values()
        assert found[id(job)].tokens == expected.tokens


def test_a_broken_segment_ends_and_its_slot_is_safe_again(model):
    lane = make_lane(model)
    jobs = jobs_of(lane, ROWS[:3], [20] * 3)
    jobs[1].encoder_output = jobs[1].encoder_output * math.nan
    late = jobs_of(lane, ROWS[3:5], [20] * 2)
    found = run(lane, jobs, late)
    assert found[id(jobs[1])].finish == "invalid"
    assert found[id(jobs[1])].tokens == []
    sound = make_lane(model)
    others = jobs_of(sound, ROWS[:3], [20] * 3)
    expected = run(sound, others, jobs_of(sound, ROWS[3:5], [20] * 2))
    assert found[id(jobs[0])].tokens == expected[id(others[0])].tokens
    assert found[id(jobs[2])].tokens == expected[id(others[2])].tokens
    assert all(found[id(job)].finish != "invalid" for job in late)


def test_infinite_weights_end_rows_as_invalid(model):
    model.parameters.lm_head[17] = math.inf
    lane = make_lane(model, beam_size=1)
    found = run(lane, jobs_of(lane, ROWS, [9] * len(ROWS)))
    assert {hypothesis.finish for hypothesis in found.values()} == {"invalid"}


def test_the_cache_follows_beams_that_swap_at_every_step(model):
    """Scores that make each beam go on from another one at every step."""
    lane = make_lane(model, beam_size=3)
    steps = []

    def swapping(hidden, count):
        # Each beam offers tokens of its own; the last beam always offers the best one.
        R = hidden.shape[0]
        beam = torch.arange(R) % 3
        log_prob = torch.full((R, count), -30.0) - torch.arange(count)
        if R > 1:
            log_prob[:, 0] = -5.0 + 4.0 * beam
            log_prob[:, 1] = -6.0 + 4.0 * beam
        else:
            log_prob[:, :3] = torch.tensor([-1.0, -2.0, -3.0])
        token = (20 + 10 * beam[:, None] + torch.arange(count)) + len(steps) % 3
        steps.append(hidden.clone())
        return log_prob, token

    lane._finder.find = swapping
    (job,) = jobs_of(lane, ROWS[:1], [12])
    lane.step([job])
    for _ in range(8):
        prefixes = lane._state.tokens[0, :, : int(lane._state.length[0])].tolist()
        lane.step([])
        # What the decoder made of each beam equals a fresh decoding of its whole prefix.
        for beam, prefix in enumerate(prefixes):
            expected = decode_whole(model, job, [2, *prefix])
            torch.testing.assert_close(steps[-1][beam], expected, atol=2e-5, rtol=1e-4)
    parents = [prefix[:-1] for prefix in prefixes]
    assert parents[0] == parents[1]  # two of them came from one beam


def decode_whole(model, job, tokens):
    """Return the decoder's last output for a prefix, decoded alone and with one beam."""
    with torch.inference_mode():
        cache = DecoderCache(model.config, 1, job.encoder_output)
        source = job.encoder_output[None]
        cache.set_source(model.cross_keys_values(source), torch.tensor([source.shape[1]]))
        for index, token in enumerate(tokens):
            hidden = model.decode(torch.tensor([[token]]), index + 1, cache)
    return hidden[0, 0]
