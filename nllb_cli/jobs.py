"""Inputs to outputs: many files as one stream of records, each translation into its own file."""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from nllb_cli.errors import UsageError
from nllb_cli.io.formats import (
    Sink,
    Source,
    check_resumed,
    check_sink,
    count_kept,
    open_sink,
    open_source,
    targets_of,
)
from nllb_cli.io.merge import Merged, merge
from nllb_cli.io.partial import Mode, is_complete, outdate
from nllb_cli.io.rows import STDIN
from nllb_cli.io.shards import check_names, expand, refuse_unfinished
from nllb_cli.io.targets import check_target, part_of, unwritable
from nllb_cli.options import BLOCK_ROWS, IoOptions
from nllb_cli.plan import Job
from nllb_cli.progress import Progress
from nllb_cli.records import Record, Translation
from nllb_cli.slices import Slice

_log = logging.getLogger("nllb")
MAX_OPEN_JOBS = 64
FLUSH_S = 1.0


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How inputs are read and outputs written."""

    io: IoOptions
    format: str | None = None
    mode: Mode = "new"
    slice: Slice = Slice()
    makes_folders: bool = False


@dataclass(slots=True, eq=False)
class _OpenJob:
    """A job between the first row that is read and the last that is written."""

    job: Job
    source: Source
    sink: Sink
    num_read: int = 0
    num_written: int = 0
    is_read: bool = False


class JobRun:
    """All jobs of a run. `records` may be iterated in another thread than `write` is called in."""

    def __init__(self, jobs: Sequence[Job], options: JobOptions) -> None:
        self.progress = Progress()
        self.complete: list[Job] = []
        """Jobs whose outputs an earlier run has completed, as far as `check` saw them."""
        self.num_skipped = 0
        """Jobs that were left out because an earlier run had completed them."""
        self.num_finished = 0
        self.left: list[Path] = []
        """Partial files in which the run has left rows."""
        self.settings: Mapping[str, Any] = {}
        """What must be equal when a run is resumed."""
        self.io = options.io
        self.jobs = jobs
        self._options = options
        self._replaced: list[list[Path]] = []
        """The targets of each output that --overwrite replaces, if they stand."""
        self._left_out: list[str] = []
        """Inputs that --skip leaves nothing of, each with its number of rows."""
        self._notes: list[str] = []
        """What the sources have to say of their rows, one text an input."""
        self._open: deque[_OpenJob] = deque()
        self._places = threading.Semaphore(MAX_OPEN_JOBS)
        self._flushed = monotonic()

    @property
    def is_complete(self) -> bool:
        """True once every output is in its place."""
        return self.num_finished + self.num_skipped == len(self.jobs)

    @property
    def is_live(self) -> bool:
        """True if an input is a pipe or terminal, where rows may be waited for."""
        return any(job.input == STDIN or not os.path.isfile(job.input) for job in self.jobs)

    def check(self) -> None:
        """Find what would stop the run: inputs that cannot be opened, outputs that exist.

        Raises:
            NllbError: the first of them.
        """
        for job in self.jobs:
            if job.output not in (None, STDIN):
                self._check_output(str(job.output))
            source = open_source(job.input, self.io, self._options.format)
            check_sink(job.output, source, self.io, self._options.mode)
            if self._options.mode == "resume":
                self._note_if_complete(job, source)
            is_file = source.num_bytes is not None  # a pipe's header may be wrong, and leaves all
            if self._options.mode == "overwrite" and is_file and job.output not in (None, STDIN):
                self._replaced.append(targets_of(str(job.output), source, self.io))
            start, stop = self._options.slice.bounds(source)
            self.progress.expect(source.num_bytes, None if stop is None else stop - start)
            source.close()

    def check_resumed(self) -> None:
        """Find an unfinished output of another run than this, now that `settings` are known.

        Raises:
            UsageError: the text says what differs.
        """
        complete = set(self.complete)
        for job in self.jobs:
            # a pipe can be opened only once, and `check` has refused to continue on it
            if job not in complete and os.path.isfile(job.input):
                source = open_source(job.input, self.io, self._options.format)
                first_row, _ = self._options.slice.bounds(source)
                check_resumed(str(job.output), source, self.io, self.settings, first_row)
                source.close()

    def begin(self) -> None:
        """Note of all outputs that are to be replaced that none is complete, as --resume asks."""
        for targets in self._replaced:
            outdate(targets)

    def _note_if_complete(self, job: Job, source: Source) -> None:
        targets = targets_of(str(job.output), source, self.io)
        if not is_complete(targets):
            return
        for target in targets if source.num_bytes is not None else ():  # a pipe is always newer
            if os.stat(target).st_mtime_ns < os.stat(job.input).st_mtime_ns:
                raise UsageError(
                    f"{target}: complete, but {job.input} is newer; remove {target} to translate "
                    "it again, or touch it if it is right as it is"
                )
        self.complete.append(job)

    def count(self) -> Iterator[tuple[Job, int | None, int]]:
        """Read all inputs; yield jobs with their rows (None: a pipe's) and those there already."""
        for job in self.jobs:
            source = open_source(job.input, self.io, self._options.format)
            if source.num_bytes is None:
                yield job, None, 0
            else:
                source.verify()
                num_rows = source.count_rows()
                start, stop = self._options.slice.bounds(source)
                num_rows = max(min(num_rows, num_rows if stop is None else stop) - start, 0)
                num_kept = num_rows if job in self.complete else 0
                if self._options.mode == "resume" and not num_kept:
                    num_kept = count_kept(str(job.output), source, self.io)
                yield job, num_rows, num_kept
                self._note_if_left_out(source)
            source.close()
        self._tell_left_out()

    def sample(self) -> Iterator[Record]:
        """Yield the records of all inputs that can be read again; nothing is written."""
        for job in self.jobs:
            source = open_source(job.input, self.io, self._options.format)
            if source.num_bytes is not None:
                for record in source.records(*self._options.slice.bounds(source)):
                    record.input = source
                    yield record
            source.close()

    def _check_output(self, output: str) -> None:
        for target in self.io.target_langs or ("",):
            path = Path(output.replace("{tgt}", target))
            check_target(path, self._options.makes_folders)
            if self._options.mode != "new":
                continue
            if path.with_name(path.name + ".part.json").exists():
                raise UsageError(
                    f"{path}: an interrupted run has begun it;"
                    " --resume continues it, --overwrite starts again"
                )
            if path.exists():
                raise UsageError(f"{path}: exists; choose another name or --overwrite")

    def records(self) -> Iterator[Record | None]:
        """Yield the records of all inputs that are left to do, one input after the other.

        A None now and then says that no more come before some of them are written.
        """
        for number, job in enumerate(self.jobs, 1):
            self._places.acquire()
            opened = self._start(job)
            if opened is None:
                self._places.release()
            else:
                self._open.append(opened)
                yield from self._records_of(opened)
                opened.is_read = True
            if number % (MAX_OPEN_JOBS // 2) == 0:
                yield None
        self._tell_left_out()
        _tell(self._notes)
        self.progress.is_read = True

    def _records_of(self, opened: _OpenJob) -> Iterator[Record]:
        source, progress = opened.source, self.progress
        first, stop = self._options.slice.bounds(opened.source)
        start = first + opened.sink.num_rows
        progress.resumed += opened.sink.num_rows
        for status, num_rows in opened.sink.before.items():
            progress.before[status.partition(" ")[0]] += num_rows
        if self.io.status_field is not None:
            # repeats of rows that are written already must be marked as in one go
            first = max(first, start - start % BLOCK_ROWS)
        else:
            first = start
        progress.current = opened
        records = source.records(first, stop)
        for record in islice(records, start - first):
            record.input, record.is_done = source, True
            yield record
        for record in records:
            record.input = source
            opened.num_read += 1
            yield record
        if opened.num_read + opened.sink.num_rows == 0:
            self._note_if_left_out(source)
        self._notes += filter(None, [source.note()])
        progress.current = None
        progress.read_before += opened.num_read
        progress.bytes_read += opened.source.num_bytes or 0

    def _note_if_left_out(self, source: Source) -> None:
        skip, limit = self._options.slice.skip, self._options.slice.limit
        if not skip or limit == 0:
            return
        if source.num_bytes is None:  # of a pipe nothing else is known
            self._left_out.append(f"{source.name}: has no more than {skip:,} rows")
        elif source.count_rows() <= skip:
            num_rows = source.count_rows()
            rows = "1 row" if num_rows == 1 else f"{num_rows:,} rows"
            self._left_out.append(f"{source.name}: has {rows}")

    def _tell_left_out(self) -> None:
        skip = self._options.slice.skip
        _tell([f"{text}, and --skip {skip} leaves all out" for text in self._left_out])

    def _start(self, job: Job) -> _OpenJob | None:
        options = self._options
        source = open_source(job.input, options.io, options.format)
        first_row, _ = options.slice.bounds(source)
        if options.makes_folders and job.output is not None:
            folder = os.path.dirname(job.output)
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                raise unwritable(folder, error) from None
        sink = open_sink(job.output, source, options.io, options.mode, self.settings, first_row)
        if sink.is_finished:
            self.num_skipped += 1
            self.progress.bytes_read += source.num_bytes or 0
            self.progress.resumed += source.num_rows or 0
            source.close()
            sink.close()
            return None
        return _OpenJob(job, source, sink)

    def write(self, translations: list[Translation]) -> None:
        """Put translations, which come in the order of the records, into their outputs."""
        rest = translations
        while rest:
            source = rest[0].record.input
            while self._open[0].source is not source:
                self._finish_first()
            # those of an input follow each other
            is_one = rest[-1].record.input is source
            count = len(rest) if is_one else sum(row.record.input is source for row in rest)
            first = self._open[0]
            first.sink.write_all(rest[:count])
            first.num_written += count
            rest = rest[count:]
        self.progress.written += len(translations)
        while self._open and self._open[0].is_read:
            if self._open[0].num_written < self._open[0].num_read:
                break
            self._finish_first()
        self._flush()

    def _flush(self) -> None:
        """Hand what is written to the operating system, at once where somebody waits for it."""
        if self._open and (
            self._open[0].source.num_bytes is None or monotonic() - self._flushed > FLUSH_S
        ):
            self._open[0].sink.flush()
            self._flushed = monotonic()

    def _finish_first(self) -> None:
        first = self._open[0]
        assert first.is_read
        assert first.num_read == first.num_written, f"{first.source.name}: rows were lost"
        first.sink.finish()
        first.sink.close()
        first.source.close()
        self._open.popleft()
        self.num_finished += 1
        self._places.release()

    def close(self) -> None:
        """Leave unfinished outputs so that they can be resumed."""
        while self._open:
            first = self._open.popleft()
            first.source.close()
            first.sink.close()
            if first.job.output not in (None, STDIN):
                targets = targets_of(str(first.job.output), first.source, self.io)
                self.left += [path for path in map(part_of, targets) if path.exists()]


def _tell(texts: Sequence[str]) -> None:
    """Say what is so with some inputs: of the first of them, and how many others there are."""
    if texts:
        num_more = len(texts) - 1
        inputs = "input" if num_more == 1 else "inputs"
        more = f"; so with {num_more:,} more {inputs}" if num_more else ""
        _log.warning("%s%s", texts[0], more)


def merge_shards(
    shards: Sequence[str], output: str, format: str | None, overwrite: bool, as_given: bool
) -> Merged:
    """Write the rows of all shards into one file, those of lines' status files beside it."""
    shards = expand(shards)
    refuse_unfinished(shards)
    if not as_given:
        check_names(shards)
    return merge(shards, output, format=format, overwrite=overwrite)
