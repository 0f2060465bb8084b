"""Run a decode step at a rung of the ladder: eagerly at first, then as a captured graph."""

from collections.abc import Callable
from typing import Any

import torch

CAPTURE_AFTER = 12
"""Steps that want a rung before it is captured: a short job captures nothing."""
CAPTURE_BESIDE_LARGER = 32
"""The same where a larger graph serves meanwhile: what it wastes, some milliseconds a step, adds up
to a capture's 60 ms only then. The end of a job comes by every rung for a few steps each.
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

    def __init__(self, step: Callable[[int], None], num_slots: int, device: torch.device) -> None:
        self.rungs = ladder(num_slots)
        self._step = step
        self._device = device
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._num_wishes = dict.fromkeys(self.rungs, 0)
        self._memory: Any = None  # the pool that all graphs share; they never run at once

    def rung(self, num_wanted: int) -> int:
        """Return the places to run for so many: the smallest rung with room, else the largest.

        While that rung is not worth a capture yet, a larger captured one is faster than launching
        every kernel by itself.
        """
        n = next((n for n in self.rungs if n >= num_wanted), self.rungs[-1])
        self._num_wishes[n] += 1
        larger = min((size for size in self._graphs if size > n), default=None)
        if n in self._graphs or larger is None or self._num_wishes[n] > CAPTURE_BESIDE_LARGER:
            return n
        return larger

    def run(self, n: int) -> None:
        """Run one step over the first `n` places; `n` comes from `rung`."""
        if n in self._graphs:
            self._graphs[n].replay()
            return
        self._step(n)
        if self._device.type == "cuda" and self._num_wishes[n] >= CAPTURE_AFTER:
            self._capture(n)

    def is_captured(self, n: int) -> bool:
        """Whether steps at this rung are replayed."""
        return n in self._graphs

    def _capture(self, n: int) -> None:
        # The eager steps before have compiled every kernel, so nothing but launches is recorded.
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            self._step(n)
        self._memory = graph.pool()
        self._graphs[n] = graph
