"""The ladder has a rung for every number of places, and steps run at the rung that is asked for."""

import pytest
import torch

from nllb_cli.engine.graphs import CAPTURE_AFTER, CAPTURE_BESIDE_LARGER, GraphRunner, ladder


@pytest.mark.parametrize("num_slots", [1, 7, 8, 9, 37, 64, 1023, 1024, 4096])
def test_the_ladder_climbs_to_the_whole(num_slots):
    rungs = ladder(num_slots)
    assert rungs == sorted(set(rungs))
    assert rungs[-1] == num_slots
    for lower, upper in zip(rungs, rungs[1:], strict=False):
        assert lower < upper <= 2 * lower
    assert rungs[0] == min(16, num_slots)


@pytest.mark.parametrize("num_slots", [1, 13, 100])
def test_a_rung_holds_what_is_wanted_and_the_one_below_does_not(num_slots):
    runner = GraphRunner(lambda n: None, num_slots, torch.device("cpu"))
    for wanted in range(1, num_slots + 1):
        rung = runner.rung(wanted)
        assert rung >= wanted
        below = [n for n in runner.rungs if n < rung]
        assert not below or below[-1] < wanted
    assert runner.rung(num_slots + 5) == num_slots


def test_on_a_cpu_every_step_is_eager():
    steps = []
    runner = GraphRunner(steps.append, 20, torch.device("cpu"))
    for n in [16, 20] * (CAPTURE_AFTER + 3):
        runner.run(runner.rung(n))
    assert steps == [16, 20] * (CAPTURE_AFTER + 3)
    assert not any(runner.is_captured(n) for n in runner.rungs)


class FakeGraph:
    """Counts its replays."""

    def __init__(self):
        self.num_replays = 0

    def replay(self):
        self.num_replays += 1

    def pool(self):
        return "pool"


def test_a_rung_is_captured_once_it_is_worth_it(monkeypatch):
    pools = []

    class Capture:
        def __init__(self, graph, pool):
            pools.append(pool)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    steps = []
    runner = GraphRunner(steps.append, 32, torch.device("cuda"))
    for _ in range(CAPTURE_AFTER + 5):
        runner.run(runner.rung(17))
    assert runner.is_captured(32)
    # all eager ones, and the one that is recorded and not executed
    assert steps == [32] * (CAPTURE_AFTER + 1)
    assert runner._graphs[32].num_replays == 5
    for _ in range(CAPTURE_BESIDE_LARGER):  # a few steps are not worth it: the larger graph serves
        assert runner.rung(3) == 32
    runner.run(runner.rung(3))
    assert steps[-1] == 16
    assert runner.is_captured(16)
    assert pools == [None, "pool"]  # the graphs share their memory
