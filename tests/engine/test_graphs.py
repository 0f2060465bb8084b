"""The ladder has a rung for every number of places, and steps run at the rung that is asked for."""

from contextlib import nullcontext

import pytest
import torch

from nllb_cli.engine.graphs import (
    CAPTURE_AFTER,
    CAPTURE_BESIDE_LARGER,
    WIDE_ROWS,
    GraphRunner,
    ladder,
)


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
    runner = GraphRunner(lambda n: None, num_slots, 1, torch.device("cpu"))
    for wanted in range(1, num_slots + 1):
        rung = runner.rung(wanted)
        assert rung >= wanted
        below = [n for n in runner.rungs if n < rung]
        assert not below or below[-1] < wanted
    assert runner.rung(num_slots + 5) == num_slots


def test_on_a_cpu_every_step_is_eager():
    steps = []
    runner = GraphRunner(steps.append, 20, 1, torch.device("cpu"))
    for n in [16, 20] * (CAPTURE_AFTER + 3):
        runner.run(runner.rung(n))
    assert steps == [16, 20] * (CAPTURE_AFTER + 3)
    assert not any(runner.is_captured(n) for n in runner.rungs)


class FakeGraph:
    """Counts its replays, and remembers whose memory it has."""

    def __init__(self):
        self.num_replays = 0
        self.is_recording = False
        self.memory = "its own"

    def capture_begin(self, pool, capture_error_mode):
        self.is_recording = True
        self.memory = pool or self.memory

    def capture_end(self):
        assert self.is_recording
        self.is_recording = False

    def replay(self):
        assert not self.is_recording
        self.num_replays += 1

    def pool(self):
        return "the first one's"


@pytest.fixture
def graphs(monkeypatch):
    made = []

    def graph():
        made.append(FakeGraph())
        return made[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "a stream")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return made


def steps_and_runner(num_slots, rows_per_slot=1):
    """A runner whose largest rung is captured, and the steps that it runs from here on."""
    steps = []
    runner = GraphRunner(steps.append, num_slots, rows_per_slot, torch.device("cuda"))
    for _ in range(CAPTURE_AFTER + 5):
        runner.run(runner.rung(num_slots))
    # all eager ones, and the one that is recorded and not executed
    assert steps == [num_slots] * (CAPTURE_AFTER + 1)
    steps.clear()
    return steps, runner


def test_the_first_rung_is_captured_once_it_is_worth_it(graphs):
    _, runner = steps_and_runner(32)
    assert runner.is_captured(32)
    assert [graph.num_replays for graph in graphs] == [5]


def test_a_wide_rung_below_a_captured_one_is_captured_at_once(graphs):
    steps, runner = steps_and_runner(64, WIDE_ROWS // 32)
    for _ in range(3):
        runner.run(runner.rung(20))
    assert steps == [32, 32]  # an eager step, which is recorded then
    assert [graph.num_replays for graph in graphs] == [5, 2]
    assert [graph.memory for graph in graphs] == ["its own", "the first one's"]


def test_a_narrow_rung_is_captured_where_it_is_wanted_long(graphs):
    steps, runner = steps_and_runner(32)
    for _ in range(2):  # the ends of two jobs: the larger graph serves
        for _ in range(CAPTURE_BESIDE_LARGER):
            assert runner.rung(3) == 32
        assert runner.rung(17) == 32
    for _ in range(CAPTURE_BESIDE_LARGER + 2):
        runner.run(runner.rung(3))
    assert steps == [16, 16]
    assert runner.is_captured(16)
    assert graphs[1].num_replays == 1


def test_what_breaks_a_capture_is_what_is_raised(graphs, monkeypatch):
    def step(n):
        if graphs and graphs[-1].is_recording:
            raise torch.OutOfMemoryError("no room")

    def broken_end(graph):
        raise RuntimeError("the capture was broken off")

    monkeypatch.setattr(FakeGraph, "capture_end", broken_end)
    runner = GraphRunner(step, 16, 1, torch.device("cuda"))
    for _ in range(CAPTURE_AFTER - 1):
        runner.run(runner.rung(1))
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        runner.run(runner.rung(1))
