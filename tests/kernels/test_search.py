"""The beam step of all slots: the kernel against its twin, its twin against the plain search."""

import math
from functools import partial

import pytest
import torch

from nllb_cli.engine import beam
from nllb_cli.kernels import admission, search
from tests.kernels.search_world import EOS, PAD, World

RULES = {"false": search.STOP_HEURISTIC, "true": search.STOP_FIRST, "never": search.STOP_NEVER}


def run(world, step, admit, stopping, penalty):
    """Run every entry's search to its end; return the results."""
    device = world.outbox.score.device
    powers = torch.tensor([float(max(g, 1)) ** penalty for g in range(world.T + 1)], device=device)
    for _ in range(200):
        admit(world.state, world.source, world.queue, world.io)
        if int(world.queue.counters[admission.NUM_ACTIVE]) == 0:
            return world.results()
        step(world.state, world.outbox, world.io, world.scores(), powers, (EOS, PAD, stopping))
    raise AssertionError("a search does not end")


def plain(world, limits, stopping, penalty):
    """The same searches by the plain beam step."""
    rule = beam.SearchRule(EOS, penalty, "true" if world.K == 1 else stopping)
    language = world.queue.language.long().cpu()
    state = beam.initial_state(language, torch.tensor(limits), world.K, world.T)
    entries = torch.arange(len(limits))[:, None]
    for t in range(1, world.T):
        logits = world.logits.cpu()[entries, t, state.last_tokens]
        log_probs, ids = logits.log_softmax(2).sort(dim=2, descending=True, stable=True)
        candidates = beam.Candidates(log_probs[:, :, : 2 * world.K], ids[:, :, : 2 * world.K])
        state, _ = beam.beam_step(state, candidates, rule)
    return beam.best_hypotheses(state, EOS)


def limits_of(num_entries, longest, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, longest + 1, (num_entries,), generator=generator).tolist()


@pytest.mark.parametrize("stopping", RULES)
@pytest.mark.parametrize(("K", "penalty"), [(1, 1.0), (2, 0.0), (4, 1.0), (5, -0.5), (3, 2.0)])
def test_twin_finds_what_the_plain_search_finds(K, penalty, stopping):
    limits = limits_of(23, 14, K)
    world = World(23, 17, K, 5, limits, "cpu", seed=K)
    rule = search.STOP_FIRST if K == 1 else RULES[stopping]
    found = run(world, search.beam_step_reference, admission.admit_reference, rule, penalty)
    expected = plain(world, limits, stopping, penalty)
    for (tokens, score, finish), hypothesis in zip(found, expected, strict=True):
        assert tokens == hypothesis.tokens
        assert math.isclose(score, hypothesis.score, rel_tol=1e-5, abs_tol=1e-5)
        assert finish == {"eos": 0, "length": 1}[hypothesis.finish]


@pytest.mark.parametrize(
    ("K", "penalty", "stopping"),
    [(1, 1.0, 1), (2, 0.0, 0), (4, 1.0, 0), (4, 1.0, 2), (5, -0.5, 1), (8, 0.6, 0), (9, 1.0, 0)],
)
def test_kernel_does_what_its_twin_does(device, K, penalty, stopping):
    limits = limits_of(7, 22, K)
    worlds = [World(7, 23, K, 3, limits, device, seed=K) for _ in range(2)]
    powers = torch.tensor([float(max(g, 1)) ** penalty for g in range(24)], device=device)
    kernel_step = partial(search.beam_step_triton, block_t=8)
    for _ in range(100):
        for world, step, admit in (
            (worlds[0], search.beam_step_reference, admission.admit_reference),
            (worlds[1], kernel_step, admission.admit_triton),
        ):
            admit(world.state, world.source, world.queue, world.io)
            step(world.state, world.outbox, world.io, world.scores(), powers, (EOS, PAD, stopping))
        twin, kernel = worlds
        assert kernel.io.finished.tolist() == twin.io.finished.tolist()
        assert kernel.io.next_tokens.tolist() == twin.io.next_tokens.tolist()
        assert kernel.io.positions.tolist() == twin.io.positions.tolist()
        assert kernel.queue.counters.tolist() == twin.queue.counters.tolist()
        torch.testing.assert_close(kernel.state.log_prob, twin.state.log_prob, equal_nan=True)
        if int(twin.queue.counters[admission.NUM_ACTIVE]) == 0:
            break
    else:
        pytest.fail("a search does not end")
    for (tokens, score, finish), expected in zip(kernel.results(), twin.results(), strict=True):
        assert (tokens, finish) == (expected[0], expected[2])
        assert math.isclose(score, expected[1], rel_tol=1e-6)
    assert kernel.queue.done.tolist() == twin.queue.done.tolist()


@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_row_ends_alone(device, value):
    limits = [9, 9, 9]
    whole, world = (World(3, 11, 2, 3, limits, device, seed=1) for _ in range(2))
    world.logits[1, 3] = value
    results = []
    for each in (whole, world):
        step, admit = search.beam_step_triton, admission.admit_triton
        results.append(run(each, step, admit, search.STOP_NEVER, 1.0))
    assert results[1][1][2] == search.FINISH_INVALID
    assert results[1][1][0] == []
    assert [results[0][i] for i in (0, 2)] == [results[1][i] for i in (0, 2)]
