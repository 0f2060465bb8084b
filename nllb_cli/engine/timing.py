"""Where an engine's time goes: encoding, decoding; for the rest the device waits."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock, get_ident
from time import perf_counter
from typing import Any

import torch

from nllb_cli.engine.forward import SlotModel
from nllb_cli.engine.graphs import GraphRunner
from nllb_cli.engine.lane import Lane

ENCODE, DECODE, REST = "encode", "decode", "rest"
_PARTS: tuple[tuple[Any, str, str], ...] = (
    (SlotModel, "encode", ENCODE),
    (GraphRunner, "run", DECODE),
    (Lane, "encode", ENCODE),
    (Lane, "step", DECODE),
)
_MAX_OPEN = 256


class PartTimes:
    """Seconds that the device spent in each part; encoding includes all up to the first token.

    On a GPU the time between two events around a part: of a replayed graph all work, of a step
    that is launched kernel by kernel the small gaps too. On a CPU the clock's, summed over threads.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._seconds = {ENCODE: 0.0, DECODE: 0.0}
        self._lock = Lock()
        self._threads: set[int] = set()
        self._open: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()

    def seconds(self) -> dict[str, float]:
        """Wait for the device and return what was measured so far."""
        while self._open:
            self._open[0][2].synchronize()
            self._close_first()
        return dict(self._seconds)

    def shares(self, elapsed_s: float) -> dict[str, float]:
        """Return which part of the time each took; in the rest the device had nothing to do."""
        seconds = self.seconds()
        total = max(elapsed_s * max(len(self._threads), 1), sum(seconds.values()), 1e-9)
        found = {part: value / total for part, value in seconds.items()}
        return {**found, REST: 1 - sum(found.values())}

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with its time added to a part."""

        @wraps(call)
        def on_clock(*arguments: Any, **named: Any) -> Any:
            start = perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                with self._lock:
                    self._seconds[part] += perf_counter() - start
                    self._threads.add(get_ident())

        @wraps(call)
        def between_events(*arguments: Any, **named: Any) -> Any:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            result = call(*arguments, **named)
            end.record()
            self._open.append((part, start, end))
            while len(self._open) > _MAX_OPEN and self._open[0][2].query():  # type: ignore[no-untyped-call]
                self._close_first()
            return result

        return between_events if self._is_cuda else on_clock

    def _close_first(self) -> None:
        part, start, end = self._open.popleft()
        self._seconds[part] += start.elapsed_time(end) / 1000


@contextmanager
def part_times(device: torch.device) -> Iterator[PartTimes]:
    """While entered, every engine of this process is measured."""
    times = PartTimes(device)
    before = [getattr(owner, name) for owner, name, _ in _PARTS]
    for owner, name, part in _PARTS:
        setattr(owner, name, times.around(part, getattr(owner, name)))
    try:
        yield times
    finally:
        for (owner, name, _), call in zip(_PARTS, before, strict=True):
            setattr(owner, name, call)
