"""An engine in a process of its own, between two queues of messages.

It ends as soon as its connection is closed, so that nothing outlives the parent, however that
ended. Signals are left to the parent, which may want to finish what is in hand.
"""

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from nllb_cli.errors import NllbError
from nllb_cli.records import Batch, Engine, Record, Segment

READY, TOOK, DONE, FAILED = "ready", "took", "done", "failed"
"""Messages: (READY, notes), (TOOK,), (DONE, key, hypotheses), (FAILED, kind, text, keys)."""
Maker = Callable[[], tuple[Engine, list[str]]]
"""Makes an engine and says what there is to know about its model."""

_log = logging.getLogger("nllb")
_NO_RECORD = Record(0, (), "", ())


def work(name: str, connection: Connection, maker: Maker) -> None:
    """Make the engine and translate what comes until the connection closes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _log_to_stderr(name)
    outbox = _Outbox(connection)
    try:
        engine, notes = maker()
    except Exception as error:
        outbox.put(FAILED, *_told(error), [])
        outbox.flush()
        return
    outbox.put(READY, notes)
    inbox = _Inbox(connection, outbox)
    while True:
        try:
            for segment, hypotheses in engine.translate(inbox):
                inbox.keys.discard(segment.row)
                found = [(h.tokens, h.score, h.finish) for h in hypotheses]
                outbox.put(DONE, segment.row, found)
        except Exception as error:
            if _has_lost_device(error):
                _log.warning("%s", _told(error)[1])
                os._exit(1)
            outbox.put(FAILED, *_told(error), list(inbox.keys))
            inbox.keys.clear()


def _log_to_stderr(name: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"nllb: {name}: %(message)s"))
    _log.addHandler(handler)
    _log.propagate = False


class _Outbox:
    """Sends messages from a thread; what gathers while it sends goes together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: queue.Queue[tuple[Any, ...]] = queue.Queue()
        threading.Thread(target=self._run, name="nllb-outbox", daemon=True).start()

    def put(self, *message: Any) -> None:
        """Send a message soon."""
        self._queue.put(message)

    def flush(self) -> None:
        """Wait until everything is sent."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            messages = [self._queue.get()]
            while not self._queue.empty():
                messages.append(self._queue.get())
            try:
                self._connection.send(messages)
            except OSError:
                os._exit(0)  # the parent is gone
            for _ in messages:
                self._queue.task_done()


class _Inbox:
    """A source of the batches that come in; the parent hears when one is taken."""

    is_exhausted = False

    def __init__(self, connection: Connection, outbox: _Outbox) -> None:
        self.keys: set[int] = set()
        """Numbers of the segments that the engine has."""
        self._connection = connection
        self._outbox = outbox
        self._queue: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="nllb-inbox", daemon=True).start()

    def take(self, wait: bool) -> Batch | None:
        """Return the next batch, or None if none is there and `wait` is false."""
        try:
            rows = self._queue.get(block=wait)
        except queue.Empty:
            return None
        self._outbox.put(TOOK)
        self.keys.update(row[0] for row in rows)
        return Batch([_segment(*row) for row in rows])

    def _run(self) -> None:
        while True:
            try:
                self._queue.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone, or wants no more


def _segment(key: int, source_tokens: list[int], targets: tuple[int, ...], limit: int) -> Segment:
    return Segment(_NO_RECORD, 0, 0, 1, source_tokens, targets, limit, row=key)


def _told(error: Exception) -> tuple[str, str]:
    """Return the kind of an error and its text in one line."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, NllbError):
        return type(error).__name__, text
    return "RuntimeError", f"{type(error).__name__}: {text}"


def _has_lost_device(error: Exception) -> bool:
    """Whether the device answers nothing any more in this process."""
    kind = getattr(torch, "AcceleratorError", None)
    is_lost = kind is not None and isinstance(error, kind)
    return is_lost and not isinstance(error, torch.OutOfMemoryError)
