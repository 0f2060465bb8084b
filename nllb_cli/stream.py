"""The palindrome in threads: read, split, bucket, translate, join; rows come out in order.

    reader thread ─rows→ window thread ─batches→ engine thread ─results→ caller

Between reading and the caller are never more than `Limits.max_open_rows` rows and the reader's
own `READ_AHEAD_ROWS`. A caller that stops taking rows stops the reader.
"""

import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from nllb_cli.errors import BadRowError, DeviceError, ModelError, NllbError
from nllb_cli.options import OnError
from nllb_cli.prefetch import Prefetch
from nllb_cli.records import Batch, Engine, Hypothesis, Record, Segment, Translation
from nllb_cli.text.buckets import Limits, Window
from nllb_cli.text.open_rows import MARKS, OK, OpenRow, place
from nllb_cli.text.scripts import Scripts
from nllb_cli.text.segments import (
    Codec,
    SplitRules,
    Splitter,
    deliver,
    join,
)

READ_AHEAD_ROWS = 2048
CHUNK_ROWS = 512
TICK_S = 0.2
PAUSE_S = 0.05
MAX_PLACES = 10
MAX_INVALID_AT_FIRST = 64
"""If so many rows have no finite scores and none has, it is the model that is broken."""
MAX_LOST_IN_A_ROW = 8
"""So many rows that fail one after the other mean that the engine is broken, not the rows."""
Finished = tuple[Segment, tuple[Hypothesis, ...]]


@dataclass(slots=True)
class RunStats:
    """What has come out so far."""

    rows: int = 0
    marks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MARKS, 0))
    """Rows by status."""
    source_tokens: int = 0
    """Of the segments that are translated, as `target_tokens`."""
    target_tokens: int = 0
    unknown_tokens: int = 0
    """Source tokens that stand for what the vocabulary lacks."""
    rows_in: int = 0
    """Rows that were cut into segments so far; those have `tokens_in` tokens."""
    tokens_in: int = 0
    started: float = field(default_factory=monotonic)
    places: dict[str, list[str]] = field(default_factory=dict)
    """Of the rows that ended worse than ok, the first few by status."""
    bad_rows: deque[tuple[str, str]] = field(default_factory=deque)
    """Place and error of failed rows; whoever reports them takes them out."""
    engine_waited_s: float = 0.0
    """How long the engine had nothing to do."""

    def expected_tokens(self, num_rows: int) -> float | None:
        """Source tokens of so many rows, as far as those that were read tell."""
        return self.tokens_in * num_rows / self.rows_in if self.rows_in else None

    @property
    def elapsed_s(self) -> float:
        """Since the start."""
        return monotonic() - self.started

    def note(self, translation: Translation, mark: str) -> None:
        """Remember where a row that did not go well stands."""
        where = place(translation.record)
        places = self.places.setdefault(mark, [])
        if len(places) < MAX_PLACES:
            places.append(where)
        if translation.error is not None:
            self.bad_rows.append((where, translation.error))


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream runs."""

    rules: SplitRules = SplitRules()
    on_error: OnError = "fail"
    limits: Limits = Limits()
    pause_s: float | None = PAUSE_S
    """A pause in the input this long sends on what is there; None: windows are always full."""


class Stream:
    """One run of records through an engine."""

    def __init__(self, engine: Engine, codec: Codec, options: StreamOptions) -> None:
        self.stats = RunStats()
        self._engine = engine
        self._codec = codec
        self._scripts = Scripts(codec.languages)
        self._options = options
        self._order: deque[OpenRow] = deque()
        self._opened_chars = 0  # written by the window thread alone
        self._closed_chars = 0  # written by the caller's thread alone
        self._room = threading.Event()
        self._is_stopping = False
        self._grace_s: float | None = None
        self._deadline = math.inf
        self._num_invalid = 0
        self._is_sound = False  # some row had finite scores
        self.has_ended = False
        """True once no thread of this run is alive."""

    def run(self, records: Iterable[Record | None]) -> Iterator[list[Translation]]:
        """Yield the translations of all records, in order, as lists of what is ready.

        A None among the records is nothing but a sign not to wait for those behind it. The list
        may be empty: one comes every `TICK_S` at least, so that the caller can look around.
        """
        self._rows = Prefetch(records, READ_AHEAD_ROWS, "reader")
        self._batches = Prefetch(self._window(), 1 << 30, "window")
        self._tracked = _Tracked(self._batches)
        self._results = Prefetch(self._translate(), 1 << 30, "engine")
        for thread in self._threads():
            thread.start()
        try:
            while not self._results.is_exhausted and monotonic() < self._deadline:
                results = self._results.take(CHUNK_ROWS, TICK_S)
                deliver(results, self._codec, self._scripts)
                self._count(results)
                yield from self._ready_rows()
                self._heed_request()
            yield from self._ready_rows()
            for thread in self._threads():
                if thread.error is not None:
                    raise thread.error
            assert self._is_stopping or not self._order, "rows were lost"
        finally:
            self.close()

    def request_stop(self, grace_s: float) -> None:
        """Read no more; what the engine has in hand may still come out for a while.

        Does nothing but note it, so that a signal handler may call it at any moment.
        """
        self._grace_s = grace_s

    def _heed_request(self) -> None:
        if self._grace_s is not None and not self._is_stopping:
            self._is_stopping = True
            self._deadline = monotonic() + self._grace_s
            self._rows.stop()
            self._batches.stop()
            self._room.set()

    def close(self) -> None:
        """Stop all threads; those that hang in a read or in the engine die with the process."""
        self._is_stopping = True
        for thread in self._threads():
            thread.stop()
        self._room.set()
        self.has_ended = all(thread.join(0.5) for thread in self._threads())

    def _threads(self) -> tuple[Prefetch[Finished], Prefetch[Batch], Prefetch[Record]]:
        return self._results, self._batches, self._rows

    def _window(self) -> Iterator[Batch]:
        options = self._options
        splitter = Splitter(self._codec, options.rules)
        window = Window(options.limits)
        is_exact = options.pause_s is None
        while not self._rows.is_exhausted:
            num_rows = min(CHUNK_ROWS, window.room)
            timeout_s = options.pause_s if window.num_rows else None
            rows = splitter.split(self._rows.take(num_rows, timeout_s, is_exact))
            is_short = len(rows) < (num_rows if is_exact else 1)
            is_bad = options.on_error == "fail" and _cut_after_failed(rows)
            rows = window.add(rows)
            self._opened_chars += sum([row.num_chars for row in rows])
            self._order.extend(rows)
            if window.is_full or is_bad or is_short:
                yield from self._empty(window)
                self._results.wake()
                self._wait_for_room()
            if is_bad:
                return
        yield from self._empty(window)

    def _empty(self, window: Window) -> list[Batch]:
        self.stats.rows_in += window.num_rows
        batches = window.empty()
        for batch in batches:
            self.stats.tokens_in += sum([len(s.source_tokens) for s in batch.segments])
        return batches

    def _wait_for_room(self) -> None:
        limits = self._options.limits
        while not self._is_stopping:
            self._room.clear()
            is_free = len(self._order) + limits.window_rows <= limits.max_open_rows
            open_chars = self._opened_chars - self._closed_chars
            if is_free and open_chars <= limits.max_open_chars:
                return
            self._room.wait()

    def _translate(self) -> Iterator[Finished]:
        tracked = self._tracked
        while True:
            try:
                for segment, hypotheses in self._engine.translate(tracked):
                    tracked.in_flight.discard(segment)
                    yield segment, hypotheses
                return
            except NllbError:
                raise
            except Exception as error:
                if not tracked.in_flight:
                    raise
                yield from self._one_by_one(error)

    def _one_by_one(self, cause: Exception) -> Iterator[Finished]:
        """Find the rows on which the engine fails, and translate the others."""
        segments = sorted(self._tracked.in_flight, key=lambda segment: segment.record.index)
        self._tracked.in_flight.clear()
        num_lost = 0
        for segment in segments:
            try:
                yield from self._engine.translate(_Single(segment))
                num_lost = 0
            except NllbError:
                raise
            except Exception as error:
                num_lost += 1
                if num_lost == min(MAX_LOST_IN_A_ROW, len(segments)) > 1:
                    places = f"{place(segments[0].record)} to {place(segments[-1].record)}"
                    raise DeviceError(f"{places}: the engine failed: {_one_line(cause)}") from cause
                for lost in (segment, *(segment.twins or ())):
                    lost.row.fail(f"the engine failed on this row: {_one_line(error)}")
                yield segment, ()

    def _count(self, results: list[Finished]) -> None:
        stats = self.stats
        stats.engine_waited_s = self._batches.waited_s
        stats.source_tokens += sum([len(segment.source_tokens) for segment, _ in results])
        num_tokens = [len(hypothesis.tokens) for _, found in results for hypothesis in found]
        stats.target_tokens += sum(num_tokens) + len(num_tokens)
        if not self._is_sound:
            self._refuse_broken_model(results)

    def _refuse_broken_model(self, results: list[Finished]) -> None:
        finishes = [hypothesis.finish for _, found in results for hypothesis in found]
        num_invalid = finishes.count("invalid")
        self._num_invalid += num_invalid
        self._is_sound = num_invalid < len(finishes)
        is_broken = not self._is_sound and self._num_invalid >= MAX_INVALID_AT_FIRST
        if is_broken and self._options.on_error == "fail":
            raise ModelError(
                f"of {self._num_invalid} rows none had finite scores: the model is damaged, or its "
                "values are too large for the number format (--dtype float32 is the widest)"
            )

    def _ready_rows(self) -> Iterator[list[Translation]]:
        """Take the finished rows from the front."""
        order, marks = self._order, self.stats.marks
        ready: list[Translation] = []
        num_chars = num_ok = 0
        failed = None
        while order and not order[0].num_waiting:
            row = order.popleft()
            num_chars += row.num_chars
            if row.ends_run and self._options.on_error == "fail":
                failed = row
                break
            translation = join(row)
            ready.append(translation)
            if row.mark == OK:
                num_ok += 1
                continue
            marks[MARKS[row.mark]] += 1
            if row.mark > OK:
                self.stats.note(translation, MARKS[row.mark])
                self.stats.unknown_tokens += row.num_unknown
        marks[MARKS[OK]] += num_ok
        self.stats.rows += len(ready)
        self._closed_chars += num_chars
        yield ready
        self._room.set()
        if failed is not None:
            source = failed.record.input
            text = f"{place(failed.record)}: {failed.error}"
            raise BadRowError(text, "" if source is None else source.format)


class _Tracked:
    """A batch source that remembers what the engine has in hand."""

    def __init__(self, batches: Prefetch[Batch]) -> None:
        self.in_flight: set[Segment] = set()
        self._batches = batches

    @property
    def is_exhausted(self) -> bool:
        return self._batches.is_exhausted

    def take(self, wait: bool) -> Batch | None:
        while True:
            batches = self._batches.take(1, None if wait else 0)
            if batches:
                self.in_flight.update(batches[0].segments)
                return batches[0]
            if not wait or self._batches.is_exhausted:
                return None


class _Single:
    """A batch source of one segment."""

    def __init__(self, segment: Segment) -> None:
        self._batch: Batch | None = Batch([segment])

    @property
    def is_exhausted(self) -> bool:
        return self._batch is None

    def take(self, wait: bool) -> Batch | None:
        batch, self._batch = self._batch, None
        return batch


def _cut_after_failed(rows: list[OpenRow]) -> bool:
    """Drop what follows the first failed row; tell whether there is one."""
    for position, row in enumerate(rows):
        if row.error is not None:
            del rows[position + 1 :]
            return True
    return False


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
