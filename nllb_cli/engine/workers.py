"""One engine process a device, fed from one queue; results come in any order.

Only integers cross to the processes: segments stay here and go by number. Each process has a
batch or two in reserve and is given the next one when its engine takes one, so that a slow one
holds nothing but what it has in hand.
"""

import atexit
import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from nllb_cli import errors
from nllb_cli.engine.worker import DONE, FAILED, READY, TOOK, Maker, work
from nllb_cli.errors import DeviceError, NllbError
from nllb_cli.records import BatchSource, Hypothesis, Segment

_RESERVE_BATCHES = 2
_AGAIN_ROWS = 64
_POLL_S = 0.01
_LOOK_S = 0.5
_END_S = 3.0
_log = logging.getLogger("nllb")

Result = tuple[Segment, tuple[Hypothesis, ...]]


@dataclass(slots=True, eq=False)
class _Worker:
    """A process as its parent sees it."""

    name: str
    process: BaseProcess
    connection: Connection
    keys: set[int] = field(default_factory=set)
    """Numbers of the segments that it has."""
    num_reserved: int = 0
    """Batches that its engine has not taken yet."""

    @property
    def cause(self) -> str:
        """How the process ended."""
        self.process.join(_END_S)
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        reason = f"killed by {signal.Signals(-code).name}"
        return f"{reason}, maybe for want of memory" if -code == signal.SIGKILL else reason


class EnginePool:
    """Several engines as one. What a process that dies had in hand goes to the others."""

    def __init__(self, makers: Sequence[tuple[str, Maker]]) -> None:
        """Start one process for each (name, maker of its engine) and wait until all are ready.

        Raises:
            NllbError: what one of them could not start for
        """
        self.notes: list[str] = []
        """What the first of them has to say about the model."""
        self._workers: list[_Worker] = []
        self._segments: dict[int, Segment] = {}
        self._returned: deque[list[int]] = deque()
        self._twice: set[int] = set()  # was in the hands of a process that died
        self._num_segments = 0
        self._is_closed = False
        atexit.register(self.close)  # before multiprocessing waits for its children
        try:
            for name, maker in makers:
                self._workers.append(_start(name, maker))
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int | None]:
        """The processes that are alive, as the system knows them."""
        return [worker.process.pid for worker in self._workers]

    def translate(self, source: BatchSource) -> Iterator[Result]:
        """Yield each segment once, with its best hypothesis for each of its `target_ids`."""
        if not self._workers:
            raise DeviceError("all processes of the engine have ended")
        try:
            while True:
                self._feed(source)
                if self._segments:
                    yield from self._receive(source)
                elif source.is_exhausted and not self._returned:
                    return
        except OSError:
            if not self._is_closed:  # closed by another thread: nobody waits for more
                raise
        finally:
            self._forget()

    def close(self) -> None:
        """End all processes: they do so when they find their connection closed."""
        self._is_closed = True
        atexit.unregister(self.close)
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(_END_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def _wait_until_ready(self) -> None:
        starting = {worker.connection: worker for worker in self._workers}
        while starting:
            for connection in wait(list(starting)):
                assert isinstance(connection, Connection)
                worker = starting.pop(connection)
                try:
                    ((kind, *content),) = connection.recv()
                except (EOFError, ConnectionResetError):
                    raise DeviceError(
                        f"{worker.name}: its process ended while it started ({worker.cause}); "
                        'what starts several must itself stand under if __name__ == "__main__"'
                    ) from None
                if kind == FAILED:
                    raise _error(worker, *content[:2])
                assert kind == READY
                self.notes = self.notes or content[0]

    def _feed(self, source: BatchSource) -> None:
        """Give batches to those with room, to who has least first."""
        while True:
            worker = min(self._workers, key=lambda worker: (worker.num_reserved, len(worker.keys)))
            is_idle = not self._segments
            if worker.num_reserved >= _RESERVE_BATCHES and not is_idle:
                return
            keys = self._returned.popleft() if self._returned else self._take(source, is_idle)
            if not keys:
                return
            worker.keys.update(keys)
            worker.num_reserved += 1
            rows = [_row(key, self._segments[key]) for key in keys]
            try:
                worker.connection.send(rows)
            except (BrokenPipeError, ConnectionResetError):
                self._bury(worker)

    def _take(self, source: BatchSource, is_idle: bool) -> list[int]:
        """Number the segments of the next batch; none if there is none now."""
        batch = source.take(wait=is_idle)
        if batch is None:
            return []
        first = self._num_segments
        self._num_segments += len(batch.segments)
        keys = list(range(first, self._num_segments))
        self._segments.update(zip(keys, batch.segments, strict=True))
        return keys

    def _receive(self, source: BatchSource) -> Iterator[Result]:
        """Wait a moment for messages; yield the results among them."""
        has_room = any(worker.num_reserved < _RESERVE_BATCHES for worker in self._workers)
        timeout_s = _POLL_S if has_room and not source.is_exhausted else _LOOK_S
        workers = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(workers), timeout_s):
            assert isinstance(connection, Connection)
            worker = workers[connection]
            try:
                messages = connection.recv()
            except (EOFError, ConnectionResetError):
                self._bury(worker)
                continue
            for kind, *content in messages:
                yield from self._heed(worker, kind, content)

    def _heed(self, worker: _Worker, kind: str, content: list[Any]) -> Iterator[Result]:
        if kind == TOOK:
            worker.num_reserved -= 1
        elif kind == DONE:
            key, found = content
            worker.keys.discard(key)
            segment = self._segments.pop(key, None)
            if segment is not None:  # else of a call that was given up
                yield segment, tuple(Hypothesis(*values) for values in found)
        else:
            assert kind == FAILED
            name, text, keys = content
            worker.keys.difference_update(keys)
            if not self._segments.keys().isdisjoint(keys):
                raise _error(worker, name, text)

    def _bury(self, worker: _Worker) -> None:
        """Let the others do what a dead process had in hand."""
        self._workers.remove(worker)
        worker.connection.close()
        keys = sorted(worker.keys & self._segments.keys())
        again = self._twice.intersection(keys)
        if again or not self._workers:
            what = "on the same rows" if again else "and no other is left"
            raise DeviceError(
                f"{worker.name}: its process ended ({worker.cause}), {what}; what was written so "
                "far is complete, --resume continues it"
            )
        _log.warning(
            "%s: its process ended (%s); the other devices do its %d rows",
            worker.name, worker.cause, len(keys),
        )  # fmt: skip
        self._twice.update(keys)
        for first in range(0, len(keys), _AGAIN_ROWS):
            self._returned.append(keys[first : first + _AGAIN_ROWS])

    def _forget(self) -> None:
        """Drop what is in flight: its results are ignored when they come."""
        self._segments.clear()
        self._returned.clear()
        self._twice.clear()


def _start(name: str, maker: Maker) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=work, args=(name, theirs, maker), name=f"nllb-{name}", daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(name, process, ours)


def _row(key: int, segment: Segment) -> tuple[int, list[int], tuple[int, ...], int]:
    return key, segment.source_tokens, segment.target_ids, segment.max_target_tokens


def _error(worker: _Worker, name: str, text: str) -> Exception:
    """Return an engine's error as if it had happened here."""
    kind: Callable[[str], Exception] = getattr(errors, name, RuntimeError)
    if isinstance(kind, type) and issubclass(kind, NllbError):
        return kind(text)
    return RuntimeError(f"{worker.name}: {text}")
