import threading
import time

import pytest

from nllb_cli.prefetch import Prefetch


def prefetch(items, depth=10):
    made = Prefetch(items, depth, "test")
    made.start()
    return made


def drain(source, max_items=7):
    taken = []
    while not source.is_exhausted:
        taken += source.take(max_items)
    return taken


def wait_until(condition, timeout_s=5):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("depth", [1, 2, 10, 10_000])
@pytest.mark.parametrize("max_items", [1, 7, 10_000])
def test_all_items_in_order(depth, max_items):
    assert drain(prefetch(range(1, 5000), depth), max_items) == list(range(1, 5000))


def test_is_never_more_than_depth_ahead():
    made = []

    def items():
        for n in range(1, 1000):
            made.append(n)
            yield n

    source = prefetch(items())
    taken = 0
    while not source.is_exhausted:
        taken += len(source.take(3))
        assert len(made) <= taken + 10 + 1
    assert taken == 999


def test_nobody_who_takes_makes_it_wait():
    made = []
    source = prefetch(made.append(n) or n for n in range(1, 1000))
    wait_until(lambda: len(made) >= 10)
    time.sleep(0.05)
    assert len(made) <= 11
    source.stop()
    assert source.join(5)


def test_take_returns_what_is_there_without_waiting_for_more():
    go_on = threading.Event()

    def items():
        yield 1
        yield 2
        go_on.wait()
        yield 3

    source = prefetch(items())
    wait_until(lambda: len(source._ready) == 2)
    assert source.take(5) == [1, 2]
    assert source.take(5, timeout_s=0.01) == []
    assert not source.is_exhausted
    go_on.set()
    assert source.take(5) == [3]


def test_exact_take_waits_for_all_of_them():
    def items():
        for n in range(1, 8):
            time.sleep(0.002)
            yield n

    source = prefetch(items())
    assert source.take(4, is_exact=True) == [1, 2, 3, 4]
    assert source.take(4, is_exact=True) == [5, 6, 7]
    assert source.is_exhausted


def test_a_none_ends_an_exact_take():
    go_on = threading.Event()

    def items():
        yield 1
        yield None
        go_on.wait()
        yield 2

    source = prefetch(items())
    assert source.take(4, is_exact=True) == [1]
    go_on.set()
    assert source.take(4, is_exact=True) == [2]


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("bad row")

    source = prefetch(items())
    assert drain(source) == [1]
    assert str(source.error) == "bad row"


def test_stop_ends_the_iterable_and_closes_it():
    is_closed = threading.Event()

    def items():
        try:
            while True:
                yield 1
        finally:
            is_closed.set()

    source = prefetch(items())
    source.take(1)
    source.stop()
    assert source.join(5)
    assert is_closed.is_set()
    assert source.is_exhausted
    assert source.take(5) == []


def test_wake_ends_a_wait():
    source = prefetch(iter(lambda: threading.Event().wait(), 0))
    threading.Timer(0.02, source.wake).start()
    assert source.take(5) == []
    source.stop()


def test_waiting_is_counted():
    source = prefetch(time.sleep(0.1) or n for n in (1,))
    drain(source)
    assert 0.05 < source.waited_s < 5
