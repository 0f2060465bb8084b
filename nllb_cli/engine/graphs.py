"""Run a decode step at a rung of the ladder: eagerly at first, then as a captured graph."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

CAPTURE_AFTER = 12
"""Steps that want a rung before the first graph is captured: a short job captures nothing."""
CAPTURE_BESIDE_LARGER = 32
"""The same, without a break, where a larger graph serves meanwhile: the end of a job comes by the
narrow rungs for a few steps, and only a long end is worth the kernels that they compile.
"""
WIDE_ROWS = 128
"""With so many rows or more, all rungs run the kernels of the largest. Where that one is captured,
a smaller one is captured at once, for some milliseconds of the host: every end comes by it.
"""


def ladder(num_slots: int) -> list[int]:
    """Batch sizes a graph each: 16, then twice the last, and the whole."""
    rungs, size = [], 16
    while size < num_slots:
        rungs.append(size)
        size *= 2
    return [*rungs, num_slots]


class GraphRunner:
    """Replays one captured decode step a rung; on a CPU every step is eager."""

    def __init__(
        self, step: Callable[[int], None], num_slots: int, rows_per_slot: int, device: torch.device
    ) -> None:
        """`step` runs the first so many slots."""
        self.rungs = ladder(num_slots)
        self._step = step
        self._rows_per_slot = rows_per_slot
        self._device = device
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._num_wishes = dict.fromkeys(self.rungs, 0)
        self._last_wish = 0
        self._num_in_a_row = 0  # wishes for the last wish
        self._stream: torch.cuda.Stream | None = None  # captures cannot run on the default one
        self._memory: Any = None  # the pool that all graphs share; they never run at once

    def rung(self, num_wanted: int) -> int:
        """Return the places to run for so many: the smallest rung with room, else the largest.

        While that rung is not worth a capture yet, a larger captured one is faster than launching
        every kernel by itself.
        """
        n = next((n for n in self.rungs if n >= num_wanted), self.rungs[-1])
        self._num_wishes[n] += 1
        self._num_in_a_row = self._num_in_a_row + 1 if n == self._last_wish else 1
        self._last_wish = n
        larger = min((size for size in self._graphs if size > n), default=None)
        if n in self._graphs or larger is None or n * self._rows_per_slot >= WIDE_ROWS:
            return n
        return n if self._num_in_a_row > CAPTURE_BESIDE_LARGER else larger

    def run(self, n: int) -> None:
        """Run one step over the first `n` places; `n` comes from `rung`."""
        if n in self._graphs:
            self._graphs[n].replay()
            return
        self._step(n)
        is_worth_it = self._num_wishes[n] >= CAPTURE_AFTER or any(m > n for m in self._graphs)
        if is_worth_it and self._device.type == "cuda":
            self._capture(n)

    def is_captured(self, n: int) -> bool:
        """Whether steps at this rung are replayed."""
        return n in self._graphs

    def _capture(self, n: int) -> None:
        """Record a step while the device works on what was launched before.

        The eager step has compiled and loaded every kernel, so nothing but launches is recorded.
        `torch.cuda.graph` would wait for the device and collect garbage first: 50 ms more.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                self._step(n)
            except BaseException:
                with suppress(RuntimeError):  # a broken capture would hide what broke it
                    graph.capture_end()
                raise
            graph.capture_end()
        self._memory = graph.pool()
        self._graphs[n] = graph
