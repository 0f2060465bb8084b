"""What is measured adds up, and nothing of it stays behind."""

from threading import Thread
from time import perf_counter, sleep

import pytest
import torch

from nllb_cli.engine.engine import PlainEngine
from nllb_cli.engine.forward import SlotModel
from nllb_cli.engine.graphs import GraphRunner
from nllb_cli.engine.lane import Lane
from nllb_cli.engine.sizes import SlotPlan
from nllb_cli.engine.slot_engine import SlotEngine
from nllb_cli.engine.timing import PartTimes, part_times
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions
from tests.engine.parity import make_segments, translate
from tests.reference import make_checkpoint

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["slots", "plain"])
def test_both_parts_of_an_engine_are_measured(tmp_path, kind):
    make_checkpoint(tmp_path)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    if kind == "slots":
        plan = SlotPlan(parameters.config, 2, 4, 2**28, 3)
        engine = SlotEngine(parameters, DecodeOptions(2), 95, plan)
    else:
        engine = PlainEngine(parameters, DecodeOptions(2), 95, 1)
    before = (SlotModel.encode, GraphRunner.run, Lane.encode, Lane.step)
    start = perf_counter()
    with part_times(CPU) as times:
        translate(engine, make_segments([[90, 5, 6, 2]] * 5, [91], [12] * 5))
    seconds = perf_counter() - start
    assert before == (SlotModel.encode, GraphRunner.run, Lane.encode, Lane.step)
    found = times.seconds()
    assert set(found) == {"encode", "decode"}
    assert min(found.values()) > 0
    assert sum(found.values()) < seconds * torch.get_num_threads() + 0.01
    shares = times.shares(seconds)
    assert sum(shares.values()) == pytest.approx(1)
    assert all(0 <= share < 1 for share in shares.values())
    assert list(shares) == ["encode", "decode", "rest"]
    translate(engine, make_segments([[90, 5, 6, 2]], [91], [12]))
    assert times.seconds() == found


def test_time_is_added_up_even_of_a_call_that_fails():
    times = PartTimes(CPU)

    def slow(is_bad):
        sleep(0.02)
        if is_bad:
            raise ValueError("bad")
        return 7

    timed = times.around("decode", slow)
    assert timed(False) == 7
    with pytest.raises(ValueError, match="bad"):
        timed(is_bad=True)
    assert 0.04 <= times.seconds()["decode"] < 1
    assert times.seconds()["encode"] == 0


def test_shares_count_every_thread_that_works():
    times = PartTimes(CPU)
    nap = times.around("decode", lambda: sleep(0.05))
    threads = [Thread(target=nap) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # two threads of 0.5 s each: of a whole second 0.1 s
    assert times.shares(0.5)["decode"] == pytest.approx(0.1, abs=0.05)


class FakeEvent:
    """An event of a device whose clock moves by 5 ms at each of them."""

    num_recorded = 0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        FakeEvent.num_recorded += 1
        self.ms = 5 * FakeEvent.num_recorded

    def elapsed_time(self, end):
        return end.ms - self.ms

    def query(self):
        return True

    def synchronize(self):
        pass


def test_events_on_a_gpu_are_read_when_they_are_over(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    times = PartTimes(torch.device("cuda"))
    step = times.around("decode", lambda n: n)
    assert [step(n) for n in range(1000)] == list(range(1000))
    assert len(times._open) <= 256
    assert times.seconds() == {"encode": 0.0, "decode": pytest.approx(5.0)}
