"""A thread that runs ahead of its consumer by a bounded number of items."""

import threading
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Iterates in a thread of its own, at most `depth` items ahead of who takes them.

    Items are handed over in lists and locks are only touched when one side waits, so that the
    cost an item is a tenth of a microsecond. A None among them is not given out: it ends a list,
    so that nobody waits for what follows it. An exception of the iterable is kept in `error`;
    the items before it still come out.
    """

    def __init__(self, items: Iterable[T | None], depth: int, name: str) -> None:
        self.error: BaseException | None = None
        self.waited_s = 0.0
        """How long takers have waited here."""
        self._items = items
        self._depth = depth
        self._ready: deque[T | None] = deque()
        self._num_ends = 0  # Nones that were put in
        self._num_ends_taken = 0
        self._changed = threading.Condition()
        self._is_done = False
        self._is_stopped = False
        self._notify_at = depth
        self._is_producer_waiting = False
        self._was_woken = False
        self._thread = threading.Thread(target=self._run, name=f"nllb-{name}", daemon=True)

    def start(self) -> None:
        """Begin to iterate."""
        self._thread.start()

    @property
    def is_exhausted(self) -> bool:
        """True once no item will ever come again."""
        # the order matters: after _is_done nothing is added
        return self._is_stopped or (self._is_done and not self._ready)

    def take(
        self, max_items: int, timeout_s: float | None = None, is_exact: bool = False
    ) -> list[T]:
        """Up to `max_items` items; waits for the first one, or with `is_exact` for all of them.

        The list is shorter at the end, before a None, on `wake` and when the timeout is over; it
        may be empty.
        """
        wanted = min(max_items, self._depth) if is_exact else 1
        if len(self._ready) < wanted:
            self._wait(wanted, timeout_s)
        self._was_woken = False
        taken = [] if self._is_stopped else self._pop(max_items)
        if self._is_producer_waiting:
            with self._changed:
                self._changed.notify_all()
        return taken

    def wake(self) -> None:
        """Let a waiting `take` return now, even with nothing."""
        with self._changed:
            self._was_woken = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Take no more from the iterable and give no more out."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; False if it has not."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _pop(self, max_items: int) -> list[T]:
        ready, popleft = self._ready, self._ready.popleft
        taken = [popleft() for _ in range(min(max_items, len(ready)))]
        if self._num_ends > self._num_ends_taken and None in taken:
            end = taken.index(None)
            ready.extendleft(reversed(taken[end + 1 :]))
            del taken[end:]
            self._num_ends_taken += 1
        return cast(list[T], taken)

    def _wait(self, wanted: int, timeout_s: float | None) -> None:
        if timeout_s is not None and timeout_s <= 0:
            return
        start = monotonic()
        deadline = None if timeout_s is None else start + timeout_s
        with self._changed:
            while not (self._is_done or self._is_stopped or self._was_woken):
                # first the mark, then the look: the producer does both the other way round
                self._notify_at = wanted
                if len(self._ready) >= wanted or self._num_ends > self._num_ends_taken:
                    break
                left_s = None if deadline is None else deadline - monotonic()
                if left_s is not None and left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._notify_at = self._depth
        self.waited_s += monotonic() - start

    def _run(self) -> None:
        ready = self._ready
        try:
            for item in self._items:
                if item is None:
                    self._num_ends += 1  # before it can be taken
                ready.append(item)
                if item is None:
                    self._hand_over()
                if len(ready) >= self._notify_at:
                    self._hand_over()
                if self._is_stopped:
                    break
        except BaseException as error:
            self.error = error
        finally:
            self._finish()

    def _hand_over(self) -> None:
        with self._changed:
            self._changed.notify_all()
            self._notify_at = self._depth  # once is enough until the taker waits again
            self._is_producer_waiting = True
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._is_stopped)
            self._is_producer_waiting = False

    def _finish(self) -> None:
        close = getattr(self._items, "close", None)
        try:
            if close is not None:
                close()
        except BaseException as error:
            self.error = self.error or error
        with self._changed:
            self._is_done = True
            self._changed.notify_all()
