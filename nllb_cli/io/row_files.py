"""Sources and sinks of the formats whose files are rows of text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from nllb_cli.errors import BadRowError, UsageError
from nllb_cli.io.partial import Measure, Partial, PartialFile, RowFile, close_all, open_partials
from nllb_cli.io.rows import Block, ByteInput, blocks, count_lines, count_rows
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

RowFormat = Literal["lines", "jsonl", "csv", "tsv"]
Read = Callable[[Iterator[Block], IoOptions], Iterator[Record]]
Remedy = Callable[[Record, IoOptions], str | None]
Write = Callable[[Translation], str]
STATUS = attrgetter("status")
FROM_LATIN = "`iconv -f latin1 -t utf-8`"
KEEP = "go on past bad rows with --on-error keep"


class RowSource(ABC):
    """Rows of a text format."""

    def __init__(self, path: str, options: IoOptions, format: RowFormat) -> None:
        self.path = path
        self.format = format
        self._options = options
        self._input = ByteInput(path)
        self.name = self._input.name
        self.num_bytes = self._input.num_bytes
        self.num_rows: int | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the disk so far, comparable with `num_bytes`."""
        return self._input.bytes_read

    def count_rows(self) -> int:
        """Count the rows by reading the file once."""
        if self.num_rows is None:
            if self.num_bytes is None:
                raise UsageError(f"{self.name}: rows of a pipe cannot be counted; use a file")
            self.num_rows = self._count(ByteInput(self.path))
        return self.num_rows

    @abstractmethod
    def _count(self, source: ByteInput) -> int:
        """Count the rows of an input."""

    @abstractmethod
    def _records(self, start: int) -> Iterator[Record]:
        """Yield the records from a row on; bad ones are marked."""

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the records of rows `start` to `stop` (exclusive) in order."""
        if stop is not None and stop <= start:
            return
        fails = self._options.on_error == "fail"
        last = -1 if stop is None else stop - 1
        for record in self._records(start):
            if record.error is not None and fails:
                place = self.place(record.index)
                text = f"{place}: {record.error}; {self._remedy(record)}"
                raise BadRowError(text, self.format)
            yield record
            if record.index == last:
                return

    def _remedy(self, record: Record) -> str:
        """Say what can be done about a bad row."""
        if str(record.error).startswith("invalid UTF-8"):
            return f"mend the row, or the whole file if it is Latin-1 ({FROM_LATIN}), or {KEEP}"
        return f"mend the row, or {KEEP}"

    def verify(self) -> None:  # noqa: B027 (nothing to do is right for all)
        """Do nothing: the records are all there is."""

    def note(self) -> str:
        """Return nothing: rows are as they were, or bad."""
        return ""

    @abstractmethod
    def place(self, index: int) -> str:
        """Name a row for a person."""

    def close(self) -> None:  # noqa: B027 (nothing to do is right for all)
        """Do nothing: the file is open only while it is read."""


class LineSource(RowSource):
    """Rows that are lines: plain text and JSONL."""

    def __init__(
        self,
        path: str,
        options: IoOptions,
        format: RowFormat,
        read: Read,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__(path, options, format)
        self._read = read
        self._own_remedy = remedy

    def _count(self, source: ByteInput) -> int:
        return count_rows(source)

    def _records(self, start: int) -> Iterator[Record]:
        return self._read(blocks(self._input, start), self._options)

    def _remedy(self, record: Record) -> str:
        own = self._own_remedy(record, self._options) if self._own_remedy else None
        return own or super()._remedy(record)

    def place(self, index: int) -> str:
        """Name a row for a person: its line."""
        return f"{self.name}:{index + 1}"


class StreamSink:
    """Rows to a pipe or terminal."""

    is_finished = False
    before: Mapping[str, int] = {}

    def __init__(self, file: RowFile, write: Write, head: str = "") -> None:
        self._file = file
        self._write = write
        file.put(head)

    @property
    def num_rows(self) -> int:
        """Rows taken so far."""
        return self._file.num_rows

    def write_all(self, translations: Sequence[Translation]) -> None:
        """Take the next rows."""
        self._file.extend(list(map(self._write, translations)))

    def flush(self) -> None:
        """Hand all rows so far to the operating system."""
        self._file.flush()

    def finish(self) -> None:
        """Hand the last rows over."""
        self._file.flush()

    def close(self) -> None:
        """Hand the last rows over."""
        self._file.flush()


@dataclass(frozen=True, slots=True)
class RowKind:
    """What a sink must know of its format."""

    errors: str
    """How a lone surrogate is encoded, as in `str.encode`."""
    measure: Measure = count_lines
    head: str = ""
    """What stands before the first row."""


class RowSink:
    """Rows to one or more files that take their targets' places when complete."""

    def __init__(self, partial: Partial, writers: list[Write], kind: RowKind) -> None:
        self._partial = partial
        self.is_finished = partial.is_finished
        self.num_rows = 0
        self.before: Mapping[str, int] = {}
        self._files: list[PartialFile] = []
        if partial.is_finished:
            return
        if partial.complete_rows is None:
            partial.begin()
        self._files = open_partials(partial, kind.errors, kind.measure)
        self.num_rows = self._files[0].num_rows if self._files else partial.complete_rows or 0
        self.before = partial.statuses_of(self.num_rows)
        # Fewer files than writers are open only if all rows are written and some are published.
        if partial.complete_rows is None and self._files[0].is_empty:
            self._files[0].put(kind.head)
        pairs = zip(self._files, writers, strict=partial.complete_rows is None)
        self._pairs = [(file.extend, write) for file, write in pairs]

    def write_all(self, translations: Sequence[Translation]) -> None:
        """Take the next rows."""
        for extend, write in self._pairs:
            extend(list(map(write, translations)))
        self._partial.statuses.update(map(STATUS, translations))
        self.num_rows += len(translations)

    def flush(self) -> None:
        """Hand all rows so far to the operating system."""
        for file in self._files:
            file.flush()

    def finish(self) -> None:
        """Put the complete files in their places."""
        for file in self._files:
            file.complete()
        self._partial.complete(self.num_rows)
        while self._files:
            self._files[0].publish()
            del self._files[0]
        self._partial.end()

    def close(self) -> None:
        """Write what is pending; without `finish`, leave a partial output."""
        files, self._files = self._files, []
        close_all(files)
        if files:
            self._partial.pause(self.num_rows)
