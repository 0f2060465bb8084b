"""Pick a format by suffix or flag, and open sources of records and sinks of translations.

    source = open_source("in.jsonl.gz", options)
    sink = open_sink("out.jsonl", source, options, mode="resume", settings={"model": …})
    if not sink.is_finished:
        with closing(source), closing(sink):
            for record in source.records(start=first_row + sink.num_rows, stop=stop):
                sink.write_all([translate(record)])  # in the order of the records
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
- `settings` are JSON values that must be equal when a run is resumed, but for what none of its
  rows has met (`changes.met`); the input's fingerprint is added here. What differs is named in the
  refusal.
- Output has the format of its input. `-` is stdin or stdout, whose rows cannot be resumed.
- A pipe is opened when its first row is asked for, and only once.
- Lines with several targets go to one file each, named by `{tgt}` in the output's path.
"""

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from nllb_cli.errors import UsageError
from nllb_cli.io import jsonl, lines
from nllb_cli.io.compression import with_target, without_suffix
from nllb_cli.io.delimited import DelimitedSource
from nllb_cli.io.partial import Mode, Partial, RowFile, is_unfinished, sidecar_of
from nllb_cli.io.row_files import LineSource, RowKind, RowSink, StreamSink, Write
from nllb_cli.io.rows import STDIN, Block
from nllb_cli.io.sidecar import Settings, fingerprint, read_sidecar
from nllb_cli.io.targets import part_of
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

_log = logging.getLogger("nllb")
Format = Literal["lines", "jsonl", "parquet", "csv", "tsv"]
FORMATS: tuple[Format, ...] = ("lines", "jsonl", "parquet", "csv", "tsv")
TABLES: tuple[Format, ...] = ("parquet", "csv", "tsv")
"""Formats whose rows have all the same columns: under --on-error keep one more, for errors."""
_BY_SUFFIX: dict[str, Format] = {
    ".txt": "lines",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
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

    def verify(self) -> None:
        """Read what no record shows, so that damage there is found before the output needs it."""

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the records of rows `start` to `stop` (exclusive) in order."""

    def note(self) -> str:
        """Say what a person should know of the rows read so far, bad ones aside; or nothing."""

    def place(self, index: int) -> str:
        """Name a row for a person."""

    def close(self) -> None:
        """Give files back."""


class Sink(Protocol):
    """Where translations go."""

    is_finished: bool
    """True if an earlier run has completed this output and nothing is left to do."""
    before: Mapping[str, int]
    """Statuses of the rows that earlier runs have left, if those runs ended in order."""

    @property
    def num_rows(self) -> int:
        """Rows taken so far, those of the resumed run included."""

    def write_all(self, translations: Sequence[Translation]) -> None:
        """Take the next rows."""

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
            f"{path}: .json may be anything; --format jsonl if it has an object a line,"
            f" and {jsonl.FROM_LIST}"
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
    if chosen == "csv" or chosen == "tsv":
        return DelimitedSource(path, options, chosen)
    if chosen == "jsonl":
        return LineSource(path, options, chosen, jsonl.read, jsonl.remedy)
    is_guess = path == STDIN and format is None
    return LineSource(path, options, chosen, _read_piped if is_guess else lines.read)


def _read_piped(blocks: Iterator[Block], options: IoOptions) -> Iterator[Record]:
    """Read lines, and say so if the first of them looks like another format's row."""
    records = lines.read(blocks, options)
    first = next(records, None)
    if first is None:
        return
    if jsonl.is_object(first.texts[0]):
        _log.warning("stdin looks like JSONL; --format jsonl translates a field of each row")
    yield first
    yield from records


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
    check_sink(path, source, options, mode)
    if path is None or path == STDIN:
        return _open_stdout(source, options)
    settings = _with_input(source, settings or {}, first_row)
    targets = targets_of(path, source, options)
    is_table = source.format in TABLES
    if source.format == "parquet":
        from nllb_cli.io.parquet import ParquetSink, ParquetSource

        assert isinstance(source, ParquetSource)
        partial = Partial(targets, settings, mode, is_table)
        return ParquetSink(partial, source, options, first_row)
    writers = list(_writers(path, source, options).values())  # a wrong header leaves all as it is
    return RowSink(Partial(targets, settings, mode, is_table), writers, _kind(source))


def check_sink(path: str | None, source: Source, options: IoOptions, mode: Mode) -> None:
    """Refuse an output that does not go with its input, whatever stands there.

    Raises:
        UsageError: names the way out.
    """
    if path is None or path == STDIN:
        _check_stdout(source, options, mode)
    else:
        _check_suffix(path, source)
        if mode == "resume" and source.num_bytes is None:
            _check_pipe(path, source, options)
    if source.format in ("lines", "jsonl"):  # a table's header may be readable only once
        _writers(path or "stdout", source, options)


def _check_pipe(path: str, source: Source, options: IoOptions) -> None:
    """Refuse to continue on a pipe: nobody knows whether its first rows are those of before."""
    if source.path == STDIN:
        raise UsageError("--resume: stdin cannot be read again; give the input as a file")
    if is_unfinished(targets_of(path, source, options)):
        raise UsageError(
            f"--resume: {source.name} is a pipe, and may hold other rows than before;"
            " start again with --overwrite"
        )


def check_resumed(
    path: str, source: Source, options: IoOptions, settings: Settings, first_row: int
) -> None:
    """Refuse an output that another run has left unfinished.

    Raises:
        UsageError: the text says what differs.
    """
    targets = targets_of(path, source, options)
    if is_unfinished(targets):
        settings = _with_input(source, settings, first_row)
        Partial(targets, settings, "resume", source.format in TABLES)


def count_kept(path: str, source: Source, options: IoOptions) -> int:
    """Count the rows of an unfinished output that a resumed run keeps, and change nothing."""
    targets = targets_of(path, source, options)
    found = read_sidecar(sidecar_of(targets))
    if found is None or "settings" not in found:  # nothing is there that counts
        return 0
    if "complete_rows" in found:
        return int(found["complete_rows"])
    if source.format == "parquet":
        from nllb_cli.io.parquet_parts import Parts

        return Parts(targets[0], []).count()
    measure, parts = _kind(source).measure, [part_of(target) for target in targets]
    return min(measure(part, None)[0] if part.exists() else 0 for part in parts)


def _with_input(source: Source, settings: Settings, first_row: int) -> Settings:
    known = {} if source.num_bytes is None else {"input": fingerprint(source.path)}
    return {**known, "first_row": first_row, **settings}


def targets_of(path: str, source: Source, options: IoOptions) -> list[Path]:
    """Return the files that the output of a source consists of."""
    if source.format != "lines":  # whose header, if it has one, may be readable only once
        return [Path(path)]
    return [Path(target) for target in _writers(path, source, options)]


def _check_suffix(path: str, source: Source) -> None:
    suffix = Path(without_suffix(path)).suffix.lower()
    told = _BY_SUFFIX.get(suffix)
    if told is not None and told != source.format:
        raise UsageError(
            f"{path}: the output has its input's format, {source.format};"
            f" choose another suffix than {suffix}"
        )


def _check_stdout(source: Source, options: IoOptions, mode: Mode) -> None:
    if source.format == "parquet":
        raise UsageError("Parquet cannot go to stdout; name a file with -o")
    if mode == "resume":
        raise UsageError("--resume: stdout cannot be resumed; name a file with -o")
    if source.format == "lines" and len(_writers("stdout", source, options)) > 1:
        raise UsageError("stdout takes one target and no --status for lines; name a file with -o")


def _open_stdout(source: Source, options: IoOptions) -> Sink:
    kind, (write,) = _kind(source), _writers("stdout", source, options).values()
    return StreamSink(RowFile(1, "stdout", kind.errors), write, kind.head)


def _writers(path: str, source: Source, options: IoOptions) -> dict[str, Write]:
    """Return the files that an output consists of, each with what makes its rows."""
    if source.format == "jsonl":
        return {path: jsonl.write(options)}
    if isinstance(source, DelimitedSource):
        return {path: source.table.write}
    targets = options.target_langs or ("",)
    if len(targets) > 1 and "{tgt}" not in path:
        name = with_target("out.txt" if path in (STDIN, "stdout") else path)
        raise UsageError(
            f"{path}: several targets need a file each; put {{tgt}} into the name:"
            f" -o {shlex.quote(name)}"
        )
    writers = {path.replace("{tgt}", t): lines.write(i) for i, t in enumerate(targets)}
    if options.status_field is not None:
        writers[path.replace(".{tgt}", "") + lines.STATUS_SUFFIX] = lines.write_status
    return writers


def _kind(source: Source) -> RowKind:
    if isinstance(source, DelimitedSource):
        return RowKind("replace", source.table.measure, source.table.head)
    # A lone surrogate becomes its JSON escape, or a question mark.
    return RowKind("backslashreplace" if source.format == "jsonl" else "replace")
