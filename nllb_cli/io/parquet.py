"""Parquet, row group by row group; translations wait in numbered parts until all are there.

While the run goes on only the new columns are written, as `NAME.parts/000000.parquet` and so on,
each of them closed, synced and renamed, so that a crash costs at most one part. At the end the
input is read once more, a row group at a time, and written with the new columns beside its own;
schema metadata and every type stay. The result does not depend on where parts were closed.
Row groups of more than MAX_GROUP_ROWS rows, or about MAX_GROUP_BYTES, are cut into smaller ones.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from nllb_cli.errors import BadRowError, InputError, UsageError
from nllb_cli.io.compression import suffix_of
from nllb_cli.io.fields import ERROR_FIELD, flat_texts, output_fields, row_languages
from nllb_cli.io.magic import PIPED_PARQUET
from nllb_cli.io.parquet_file import BATCH_ROWS, ParquetFile, readable
from nllb_cli.io.parquet_parts import Parts
from nllb_cli.io.partial import Partial
from nllb_cli.io.row_files import STATUS
from nllb_cli.io.rows import STDIN
from nllb_cli.io.sidecar import fingerprint, is_same_content
from nllb_cli.io.targets import part_of, unwritable
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

PART_ROWS = 4096


class ParquetSource(ParquetFile):
    """The text columns of a Parquet file as records."""

    format: Literal["parquet"] = "parquet"

    def __init__(self, path: str, options: IoOptions) -> None:
        if path == STDIN:
            raise UsageError(PIPED_PARQUET)
        if suffix_of(path):
            raise UsageError(f"{path}: Parquet is compressed inside; unpack the file first")
        super().__init__(path)
        self._options = options
        self.num_bytes: int | None = self.mark["size"]
        self._rows_read = 0
        self._check_columns()

    @property
    def bytes_read(self) -> int:
        """The file's size times the share of its rows that were read."""
        return (self.num_bytes or 0) * self._rows_read // max(1, self.num_rows)

    def _check_columns(self) -> None:
        options = self._options
        languages = [name for name in (options.source_field, options.target_field) if name]
        for name in [*options.fields, *languages]:
            found = self.schema.get_all_field_indices(name)
            if len(found) != 1:
                raise InputError(
                    f"{self.name}: {'no' if not found else 'more than one'} column {name!r};"
                    f" {self._choice(name.partition('.')[0])}"
                )
            kind = self.schema.field(found[0]).type
            if not _is_text(kind):
                raise InputError(
                    f"{self.name}: column {name!r} holds {kind}, not text; {self._choice(name)}"
                )
        outputs = output_fields(options)
        if not outputs.may_replace:
            for name in [*outputs.names, *filter(None, [outputs.status]), ERROR_FIELD]:
                if name in self.schema.names:
                    raise InputError(
                        f"{self.name}: column {name!r} is there already;"
                        " choose a name with --output-column"
                    )

    def _choice(self, name: str) -> str:
        """Say what to ask for instead of a column, or of a field inside it."""
        names = self.schema.names
        if names.count(name) == 1 and pa.types.is_struct(self.schema.field(name).type):
            return (
                "nested columns are not read; `pq.write_table(pq.read_table(IN).flatten(), OUT)`"
                f" with `import pyarrow.parquet as pq` makes columns {name}.… of it"
            )
        fields = [field for field in self.schema if names.count(field.name) == 1]
        there = ", ".join([repr(field.name) for field in fields if _is_text(field.type)][:20])
        return f"choose with --column among {there}" if there else "no column of it holds text"

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self.num_rows

    def verify(self) -> None:
        """Read every column, also those that only the output at the end would ask for."""
        for _ in self.batches(0, None, None, BATCH_ROWS):
            pass

    def note(self) -> str:
        """Return nothing: rows are as they were, or bad."""
        return ""

    def place(self, index: int) -> str:
        """Name a row for a person."""
        return f"{self.name}: row {index + 1}"

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the records of rows `start` to `stop` (exclusive) in order."""
        options = self._options
        languages = [name for name in (options.source_field, options.target_field) if name]
        index = start
        columns = list(dict.fromkeys([*options.fields, *languages]))
        for batch in self.batches(start, stop, columns, BATCH_ROWS):
            with readable(self.name):
                values = {name: _texts(batch.column(name)) for name in columns}
            rows = zip(*(values[name] for name in options.fields), strict=True)
            for offset, texts in enumerate(rows):
                record = Record(index, texts, options.source_lang, options.target_langs)
                self._finish_record(record, {name: values[name][offset] for name in languages})
                yield record
                index += 1
            self._rows_read = index

    def _finish_record(self, record: Record, languages: dict[str, Any]) -> None:
        """Set a record's languages, or its error."""
        try:
            if languages:
                record.source_lang, record.target_langs = row_languages(languages, self._options)
            if any(isinstance(text, bytes) for text in record.texts):
                raise InputError("invalid UTF-8")
        except InputError as error:
            if self._options.on_error == "fail":
                raise BadRowError(
                    f"{self.place(record.index)}: {error};"
                    " mend the row, or go on past bad rows with --on-error keep",
                    self.format,
                ) from None
            record.texts, record.error = (None,) * len(record.texts), str(error)


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return pa.types.is_null(kind) or any(test(kind) for test in tests)


def _texts(column: Any) -> list[Any]:
    """Return the values of a text column; invalid UTF-8 stays bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raw = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return [_text(value) for value in raw]


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


class ParquetSink:
    """New columns in closed parts, joined with the input's own columns at the end."""

    def __init__(
        self, partial: Partial, source: ParquetSource, options: IoOptions, first_row: int
    ) -> None:
        self._partial = partial
        self._source = source
        self._first_row = first_row
        self._status = output_fields(options).status is not None
        self._error = options.on_error == "keep"
        self._target = partial.targets[0]
        self._names = _new_columns(options)
        self._parts = Parts(self._target, self._names)
        self._rows: list[list[str | None]] = []
        self.num_rows = 0
        self.before: Mapping[str, int] = {}
        self.is_finished = partial.is_finished
        if self.is_finished:
            self._parts.remove()
            return
        if not partial.is_resumed:
            self._parts.remove()
        if partial.complete_rows is None:
            partial.begin()
        self.num_rows = self._parts.open()
        self.before = partial.statuses_of(self.num_rows)

    def write_all(self, translations: Sequence[Translation]) -> None:
        """Take the next rows."""
        for translation in translations:
            self._write(translation)
        self._partial.statuses.update(map(STATUS, translations))

    def _write(self, translation: Translation) -> None:
        row = flat_texts(translation)
        if self._status:
            row.append(translation.status)
        if self._error:
            row.append(translation.error)
        self._rows.append(row)
        self.num_rows += 1
        if len(self._rows) >= PART_ROWS:
            self._close_part()

    def flush(self) -> None:
        """Do nothing: a part is written when it is full or the sink is closed."""

    def _close_part(self) -> None:
        if self._rows:
            self._parts.append(self._rows)
            self._rows = []

    def finish(self) -> None:
        """Join input and parts in the target's place."""
        self._close_part()
        self._partial.complete(self.num_rows)
        if not is_same_content(self._source.mark, fingerprint(self._source.path)):
            raise InputError(
                f"{self._source.path}: changed while it was translated; its columns no longer"
                " belong to the translations; start again with --overwrite"
            )
        part = part_of(self._target)
        try:
            with open(part, "wb") as file:
                self._join(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._target)
        except InputError as error:
            part.unlink()
            raise InputError(
                f"{error}; all {self.num_rows:,} translations are kept in {self._parts.folder}"
            ) from None
        except OSError as error:
            raise unwritable(part, error, self.num_rows) from None
        self._partial.end()
        self._parts.remove()

    def _join(self, file: Any) -> None:
        source, new = self._source, self._parts.columns()
        schema = self._schema()
        codec = next(iter(source.codecs.values()), "snappy")
        codecs = {**dict.fromkeys(self._names, codec), **source.codecs}
        with pq.ParquetWriter(file, schema, compression=codecs) as writer:
            end = self._first_row + self.num_rows
            for batch in source.batches(self._first_row, end, None, source.max_group_rows):
                table = pa.Table.from_batches([batch])
                added = new.take(batch.num_rows)
                for name in self._names:
                    table = _with_column(table, name, added[name])
                writer.write_table(table.cast(schema), row_group_size=batch.num_rows)

    def _schema(self) -> Any:
        table = self._source.schema.empty_table()
        for name in self._names:
            table = _with_column(table, name, pa.array([], pa.string()))
        return table.schema

    def close(self) -> None:
        """Write what is pending; without `finish`, leave the parts for a later run."""
        if not self.is_finished:
            try:
                self._close_part()
                self._partial.pause(self.num_rows)
            finally:
                self._parts.close()


def _new_columns(options: IoOptions) -> list[str]:
    outputs = output_fields(options)
    names = [*outputs.names, *filter(None, [outputs.status])]
    return [*names, ERROR_FIELD] if options.on_error == "keep" else names


def _with_column(table: Any, name: str, column: Any) -> Any:
    """Put a column in the place of one of its name, or last."""
    field = pa.field(name, pa.string())
    position = table.schema.get_field_index(name)
    if position < 0:
        return table.append_column(field, column)
    return table.set_column(position, field, column)


def merge_files(paths: Sequence[str], file: Any) -> int:
    """Write the rows of files of one schema into one, and return how many there are."""
    first = ParquetFile(paths[0])
    num_rows = 0
    with pq.ParquetWriter(file, first.schema, compression=first.codecs or "snappy") as writer:
        for path in paths:
            with closing(ParquetFile(path)) as shard:
                if not first.schema.equals(shard.schema, check_metadata=False):
                    raise InputError(f"{path}: its columns are not those of {paths[0]}")
                for batch in shard.batches(0, None, None, shard.max_group_rows):
                    writer.write_batch(batch, row_group_size=batch.num_rows)
                num_rows += shard.num_rows
    first.close()
    return num_rows
