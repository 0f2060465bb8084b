"""Pick a format by suffix or flag, and open sources of records and sinks of translations.

    source = open_source("in.jsonl.gz", options)
    sink = open_sink("out.jsonl", source, options, mode="resume", settings={"model": …})
    if not sink.is_finished:
        with closing(source), closing(sink):
            for record in source.records(start=first_row + sink.num_rows, stop=stop):
                sink.write(translate(record))       # in the order of the records
            sink.finish()

- Records come in order, one for each row, and `Record.index` is the row's number in its file from
  0, whatever part of the file is read. `source.place(index)` is that row for people: `in.jsonl:7`.
- A bad row raises `InputError` after the rows before it were yielded (`on_error="fail"`), or is a
  record with `error` set and null texts (`"keep"`); the sink writes it with an empty translation
  and the error of its `Translation`.
- Languages named by rows are passed on as written; who resolves them sets `record.error` for those
  that do not exist, or raises with `source.place(record.index)`.
- `sink.write` wants each record's translation once, in order. `flush` hands all rows so far to the
  operating system, at once for pipes. `finish` puts the output in its place; `close` without
  `finish` leaves a partial output that `mode="resume"` continues at row `sink.num_rows`.
- `settings` are JSON values that must be equal when a run is resumed; the input's fingerprint is
  added here. What differs is named in the refusal.
- Output has the format of its input. `-` is stdin or stdout, whose rows cannot be resumed.
- Lines with several targets go to one file each, named by `{tgt}` in the output's path.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Protocol

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io import jsonl, lines
from nllb_cli.io.compression import without_suffix
from nllb_cli.io.partial import (
    Mode,
    Partial,
    PartialFile,
    RowFile,
    close_all,
    count_lines,
    open_partials,
)
from nllb_cli.io.rows import STDIN, ByteInput, blocks, count_rows
from nllb_cli.io.sidecar import Settings, fingerprint
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

Format = Literal["lines", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = ("lines", "jsonl", "parquet")
_BY_SUFFIX: dict[str, Format] = {
    ".txt": "lines",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class Source(Protocol):
    """Where records come from."""

    name: str
    """The input as the person wrote it, or `stdin`."""
    path: str
    num_bytes: int | None
    """Size on disk; None for a pipe."""

    @property
    def format(self) -> Format:
        """The format of the rows."""

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the disk so far, comparable with `num_bytes`."""

    @property
    def num_rows(self) -> int | None:
        """All rows of the input, if that is known without reading it."""

    def count_rows(self) -> int:
        """Count the rows of the input, by reading it once if need be."""

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the records of rows `start` to `stop` (exclusive) in order."""

    def place(self, index: int) -> str:
        """Name a row for a person."""

    def close(self) -> None:
        """Give files back."""


class Sink(Protocol):
    """Where translations go."""

    is_finished: bool
    """True if an earlier run has completed this output and nothing is left to do."""

    @property
    def num_rows(self) -> int:
        """Rows taken so far, those of the resumed run included."""

    def write(self, translation: Translation) -> None:
        """Take the next row."""

    def flush(self) -> None:
        """Hand all rows so far to the operating system."""

    def finish(self) -> None:
        """Put the complete output in its place."""

    def close(self) -> None:
        """Write what is pending; without `finish`, leave a partial output."""


def format_of(path: str, wanted: str | None = None) -> Format:
    """Return the format of a path: the wanted one, or the one its suffix names, or lines."""
    if wanted is not None:
        for known in FORMATS:
            if wanted == known:
                return known
        raise UsageError(f"--format {wanted}: choose one of {', '.join(FORMATS)}")
    if path == STDIN:
        return "lines"
    suffix = Path(without_suffix(path)).suffix.lower()
    if suffix == ".json":
        raise UsageError(
            f"{path}: .json may be anything; --format jsonl if it has an object a line"
        )
    return _BY_SUFFIX.get(suffix, "lines")


def open_source(path: str, options: IoOptions, format: str | None = None) -> Source:
    """Open an input.

    Raises:
        InputError: it cannot be read or lacks a column.
        UsageError: the format does not suit the options.
    """
    chosen = format_of(path, format)
    if chosen == "parquet":
        from nllb_cli.io.parquet import ParquetSource

        return ParquetSource(path, options)
    return RowSource(path, options, chosen)


def open_sink(
    path: str | None,
    source: Source,
    options: IoOptions,
    mode: Mode = "new",
    settings: Settings | None = None,
    first_row: int = 0,
) -> Sink:
    """Open the output for the translations of a source; None and `-` are stdout.

    `first_row` is the row of the source that the output begins with (--skip, --shard).

    Raises:
        UsageError: the target exists, or belongs to another run, or has another format's suffix.
        InputError: the target cannot be written.
    """
    if path is None or path == STDIN:
        return _open_stdout(source, options, mode)
    _check_suffix(path, source)
    if mode == "resume" and source.path == STDIN:
        raise UsageError("--resume: stdin cannot be read again; give the input as a file")
    known = {} if source.num_bytes is None else {"input": fingerprint(source.path)}
    settings = {**known, "first_row": first_row, **(settings or {})}
    if source.format == "parquet":
        from nllb_cli.io.parquet import ParquetSink, ParquetSource

        assert isinstance(source, ParquetSource)
        return ParquetSink(Partial([Path(path)], settings, mode), source, options, first_row)
    writers = _writers(path, source, options)
    partial = Partial([Path(target) for target in writers], settings, mode)
    return RowSink(partial, list(writers.values()), _errors(source.format))


def _check_suffix(path: str, source: Source) -> None:
    suffix = Path(without_suffix(path)).suffix.lower()
    told = _BY_SUFFIX.get(suffix)
    if told is not None and told != source.format:
        raise UsageError(
            f"{path}: the output has its input's format, {source.format};"
            f" choose another suffix than {suffix}"
        )


def _open_stdout(source: Source, options: IoOptions, mode: Mode) -> Sink:
    if source.format == "parquet":
        raise UsageError("Parquet cannot go to stdout; name a file with -o")
    if mode == "resume":
        raise UsageError("--resume: stdout cannot be resumed; name a file with -o")
    writers = _writers("stdout", source, options)
    if len(writers) > 1:
        raise UsageError("stdout takes one target and no --status for lines; name a file with -o")
    return StreamSink(RowFile(1, "stdout", _errors(source.format)), next(iter(writers.values())))


Write = Callable[[Translation], str]


def _writers(path: str, source: Source, options: IoOptions) -> dict[str, Write]:
    """Return the files that an output consists of, each with what makes its rows."""
    if source.format == "jsonl":
        return {path: jsonl.write(options)}
    targets = options.target_langs or ("",)
    if len(targets) > 1 and "{tgt}" not in path:
        raise UsageError(
            f"{path}: several targets need a file each; put {{tgt}} into the name: out.{{tgt}}.txt"
        )
    writers = {path.replace("{tgt}", t): lines.write(i) for i, t in enumerate(targets)}
    if options.status_field is not None:
        writers[path.replace(".{tgt}", "") + ".status"] = lines.write_status
    return writers


def _errors(format: Format) -> str:
    """Return what becomes of a lone surrogate: its JSON escape, or a question mark."""
    return "backslashreplace" if format == "jsonl" else "replace"


class RowSource:
    """Rows of a text format."""

    def __init__(self, path: str, options: IoOptions, format: Format) -> None:
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
            self.num_rows = count_rows(ByteInput(self.path))
        return self.num_rows

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the records of rows `start` to `stop` (exclusive) in order."""
        if stop is not None and stop <= start:
            return
        rows = blocks(self._input, start)
        read = jsonl.read if self.format == "jsonl" else lines.read
        fails = self._options.on_error == "fail"
        last = -1 if stop is None else stop - 1
        for record in read(rows, self._options):
            if record.error is not None and fails:
                raise InputError(
                    f"{self.place(record.index)}: {record.error};"
                    " mend the row, or go on past bad rows with --on-error keep"
                )
            yield record
            if record.index == last:
                return

    def place(self, index: int) -> str:
        """Name a row for a person."""
        return f"{self.name}:{index + 1}"

    def close(self) -> None:
        """Do nothing: the file is open only while it is read."""


class StreamSink:
    """Rows to a pipe or terminal."""

    is_finished = False

    def __init__(self, file: RowFile, write: Write) -> None:
        self._file = file
        self._write = write

    @property
    def num_rows(self) -> int:
        """Rows taken so far."""
        return self._file.num_rows

    def write(self, translation: Translation) -> None:
        """Take the next row."""
        self._file.append(self._write(translation))

    def flush(self) -> None:
        """Hand all rows so far to the operating system."""
        self._file.flush()

    def finish(self) -> None:
        """Hand the last rows over."""
        self._file.flush()

    def close(self) -> None:
        """Hand the last rows over."""
        self._file.flush()


class RowSink:
    """Rows to one or more files that take their targets' places when complete."""

    def __init__(self, partial: Partial, writers: list[Write], errors: str) -> None:
        self._partial = partial
        self.is_finished = partial.is_finished
        self.num_rows = 0
        self._files: list[PartialFile] = []
        if partial.is_finished:
            return
        if partial.complete_rows is None:
            partial.begin()
        self._files = open_partials(partial, errors, count_lines)
        self.num_rows = self._files[0].num_rows if self._files else partial.complete_rows or 0
        # Fewer files than writers are open only if all rows are written and some are published.
        pairs = zip(self._files, writers, strict=partial.complete_rows is None)
        self._pairs = [(file.append, write) for file, write in pairs]

    def write(self, translation: Translation) -> None:
        """Take the next row."""
        for append, write in self._pairs:
            append(write(translation))
        self.num_rows += 1

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
        close_all(self._files)
        self._files = []
