"""What a worker process says of an error, and when it gives its device up."""

import os
import queue
import threading
from multiprocessing import Pipe

import pytest
import torch

from nllb_cli.engine import worker
from nllb_cli.errors import DeviceError
from nllb_cli.records import Hypothesis


class OneShot:
    """An engine that takes one batch, gives what it was told to, or raises it."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def translate(self, source):
        while self.outcomes:
            batch = source.take(wait=True)
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            for segment in batch.segments:
                yield segment, (outcome,)
        raise _OverError


class _OverError(BaseException):
    """Ends `work` in a test."""


@pytest.fixture
def run(monkeypatch):
    """Run `work` in a thread; return the connection to it, and the exit codes that it asked for."""
    exits = queue.Queue()
    strangers = set(threading.enumerate())  # a thread of an earlier test may find its pipe closed

    def exit_thread(code):
        if threading.current_thread() not in strangers:
            exits.put(code)
        raise _OverError

    monkeypatch.setattr(os, "_exit", exit_thread)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker, "_log_to_stderr", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    connections = []

    def start(*outcomes, maker=None):
        ours, theirs = Pipe()
        connections.append(ours)
        maker = maker or (lambda: (OneShot(*outcomes), ["a note"]))
        threading.Thread(target=worker.work, args=("x", theirs, maker), daemon=True).start()
        return ours, exits

    yield start
    for connection in connections:
        connection.close()
    # they must find it closed while `os._exit` is not the real one
    for thread in threading.enumerate():
        if thread.name == "nllb-inbox":
            thread.join(10)
            assert not thread.is_alive()


def messages(connection, count):
    found = []
    while len(found) < count:
        assert connection.poll(10)
        found += connection.recv()
    return found


def test_batches_in_hypotheses_out(run):
    connection, _ = run(Hypothesis([7, 8], -0.5, "eos"))
    assert messages(connection, 1) == [("ready", ["a note"])]
    connection.send([(3, [90, 5, 2], (91,), 9), (4, [90, 2], (91,), 9)])
    assert messages(connection, 3) == [
        ("took",),
        ("done", 3, [([7, 8], -0.5, "eos")]),
        ("done", 4, [([7, 8], -0.5, "eos")]),
    ]


def test_an_error_names_the_rows_in_hand_and_work_goes_on(run):
    good = Hypothesis([7], -0.5, "eos")
    connection, _ = run(ValueError("two\n  lines"), DeviceError("too small"), good)
    rows = [(key, [90, 2], (91,), 9) for key in range(3)]
    for row in rows:
        connection.send([row])
    found = messages(connection, 7)
    assert found[1:5] == [
        ("took",),
        ("failed", "RuntimeError", "ValueError: two lines", [0]),
        ("took",),
        ("failed", "DeviceError", "too small", [1]),
    ]
    assert found[6][:2] == ("done", 2)


def test_a_maker_that_fails_is_told(run):
    def maker():
        raise DeviceError("does not fit")

    connection, _ = run(maker=maker)
    assert messages(connection, 1) == [("failed", "DeviceError", "does not fit", [])]


def test_a_lost_device_ends_the_process(run):
    connection, exits = run(torch.AcceleratorError("illegal memory access"))
    connection.send([(0, [90, 2], (91,), 9)])
    assert exits.get(timeout=10) == 1


def test_out_of_memory_is_no_lost_device(run):
    connection, exits = run(torch.OutOfMemoryError("no memory left"))
    connection.send([(0, [90, 2], (91,), 9)])
    assert messages(connection, 3)[2][0] == "failed"
    assert exits.empty()


def test_a_closed_connection_ends_the_process(run):
    connection, exits = run(Hypothesis([7], -0.5, "eos"))
    messages(connection, 1)
    connection.close()
    assert exits.get(timeout=10) == 0
