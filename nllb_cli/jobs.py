"""Inputs to outputs: many files as one stream of records, each translation into its own file."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from nllb_cli.io.formats import Sink, Source, open_sink, open_source
from nllb_cli.io.partial import Mode
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

MAX_OPEN_JOBS = 64
FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """One input and where its translations go."""

    input: str
    output: str | None
    """None is stdout."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Which rows of each input are translated."""

    skip: int = 0
    limit: int | None = None
    shard: tuple[int, int] | None = None
    """Number, from 1, and count."""

    def bounds(self, source: Source) -> tuple[int, int | None]:
        """First row and the row after the last; None is the end of the input."""
        stop = None if self.limit is None else self.skip + self.limit
        if self.shard is None:
            return self.skip, stop
        number, count = self.shard
        num_rows = source.count_rows()
        stop = num_rows if stop is None else min(stop, num_rows)
        span = max(stop - self.skip, 0)
        return self.skip + span * (number - 1) // count, self.skip + span * number // count


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How inputs are read and outputs written."""

    io: IoOptions
    format: str | None = None
    mode: Mode = "new"
    slice: Slice = Slice()
    settings: dict[str, Any] = field(default_factory=dict)
    """What must be equal when a run is resumed."""


@dataclass(slots=True, eq=False)
class _OpenJob:
    """A job between the first row that is read and the last that is written."""

    key: str
    source: Source
    sink: Sink
    num_read: int = 0
    num_written: int = 0
    is_read: bool = False


class JobRun:
    """All jobs of a run. `records` may be iterated in another thread than `write` is called in."""

    def __init__(self, jobs: Iterable[Job], options: JobOptions) -> None:
        self.num_skipped = 0
        """Jobs that an earlier run had finished."""
        self.num_finished = 0
        self.rows_resumed = 0
        """Rows that earlier runs had written into the outputs that are resumed."""
        self._jobs = jobs
        self._options = options
        self._open: deque[_OpenJob] = deque()
        self._places = threading.Semaphore(MAX_OPEN_JOBS)
        self._flushed = monotonic()

    def records(self) -> Iterator[Record | None]:
        """Yield the records of all inputs that are left to do, one input after the other.

        A None now and then says that no more come before some of them are written.
        """
        for number, job in enumerate(self._jobs, 1):
            self._places.acquire()
            opened = self._start(job)
            if opened is None:
                self._places.release()
                continue
            start, stop = self._options.slice.bounds(opened.source)
            start += opened.sink.num_rows
            self.rows_resumed += opened.sink.num_rows
            self._open.append(opened)
            key = opened.key
            for record in opened.source.records(start, stop):
                record.input = key
                opened.num_read += 1
                yield record
            opened.is_read = True
            if number % (MAX_OPEN_JOBS // 2) == 0:
                yield None

    def _start(self, job: Job) -> _OpenJob | None:
        options = self._options
        source = open_source(job.input, options.io, options.format)
        first_row, _ = options.slice.bounds(source)
        sink = open_sink(job.output, source, options.io, options.mode, options.settings, first_row)
        if sink.is_finished:
            self.num_skipped += 1
            source.close()
            sink.close()
            return None
        return _OpenJob(source.name, source, sink)

    def write(self, translations: list[Translation]) -> None:
        """Put translations, which come in the order of the records, into their outputs."""
        for translation in translations:
            key = translation.record.input
            while self._open[0].key is not key:
                self._finish_first()
            first = self._open[0]
            first.sink.write(translation)
            first.num_written += 1
        self.flush(is_due=monotonic() - self._flushed > FLUSH_S)

    def flush(self, is_due: bool = True) -> None:
        """Hand what is written to the operating system, at once where somebody may wait for it."""
        while self._open and self._open[0].is_read:
            if self._open[0].num_written < self._open[0].num_read:
                break
            self._finish_first()
        if self._open and (is_due or self._open[0].source.num_bytes is None):
            self._open[0].sink.flush()
            self._flushed = monotonic()

    def _finish_first(self) -> None:
        first = self._open.popleft()
        assert first.is_read
        assert first.num_read == first.num_written, f"{first.key}: rows were lost"
        first.sink.finish()
        first.sink.close()
        first.source.close()
        self.num_finished += 1
        self._places.release()

    def close(self) -> None:
        """Leave unfinished outputs so that they can be resumed."""
        self.flush()
        while self._open:
            first = self._open.popleft()
            first.sink.close()
            first.source.close()
