"""CSV and TSV with a header: a row's own text stays, new columns are put behind it.

Fields are cut as Python's `csv` module cuts them (a quote counts at the start of a field, a doubled
quote inside quotes is one, text after the closing quote belongs to the field), and rows end at LF
outside quotes only.
- A blank line is a row and passes as it is.
- A row shorter than the header, as spreadsheets write them, is filled up, so that new columns stand
  under their names; such rows are counted. It is a bad row if a column to translate is missing.
- A longer row is bad, too: it keeps the fields under names and has the others in its error text.
- A quote that is never closed ends the run whatever --on-error says: the rows after it are lost
  in it.
- A row's place is the line of the file on which it begins; the header is on line 1.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.fields import ERROR_FIELD, flat_texts, output_fields, row_languages
from nllb_cli.io.row_files import FROM_LATIN, RowSource
from nllb_cli.io.rows import MAX_ROW_BYTES, Block, ByteInput, blocks
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

DELIMITERS: dict[str, str] = {"csv": ",", "tsv": "\t"}
_FROM_SEMICOLONS = (
    "';' parts the columns there, which `python3 -c 'import csv, sys; csv.writer(sys.stdout)"
    '.writerows(csv.reader(sys.stdin, delimiter=";"))\'` changes to commas, from stdin to stdout'
)
_TO_CLOSING_QUOTE = re.compile(r'(?:[^"]++|"")*+"')


@dataclass(slots=True)
class Row:
    """A row as it stands in the file."""

    body: str
    end: str
    """LF, CRLF or nothing."""
    error: str | None = None
    line: int = 0
    """Line of the file on which it begins, from 1."""


class Dialect:
    """How rows are cut into fields."""

    def __init__(self, delimiter: str, quotes: bool) -> None:
        self.delimiter = delimiter
        self.quotes = quotes

    def rows(self, found: Iterator[Block], name: str) -> Iterator[Row]:
        """Yield rows, each of one or more lines.

        Raises:
            InputError: a quote is never closed.
        """
        lines = _lines(found)
        for row in lines:
            if self.quotes and '"' in row.body and self._is_open(row.body, False):
                self._close(row, lines, f"{name}:{row.line}")
            yield row

    def _close(self, row: Row, lines: Iterator[Row], place: str) -> None:
        """Add lines to a row until its quotes are closed."""
        bodies, size = [row.body + row.end], 0
        is_open = True
        while is_open:
            line = next(lines, None)
            size += 0 if line is None else len(line.body)
            if line is None or size > MAX_ROW_BYTES:
                raise InputError(
                    f"{place}: a quote is opened and never closed;"
                    " close it, or write a quote that is a letter twice, in a field in quotes"
                )
            is_open = self._is_open(line.body, True)
            bodies.append(line.body + (line.end if is_open else ""))
            row.end, row.error = line.end, row.error or line.error
        row.body = "".join(bodies)

    def _is_open(self, line: str, is_open: bool) -> bool:
        """Tell whether a line ends within quotes, given whether it begins there."""
        position = 0
        while True:
            if is_open or line.startswith('"', position):
                closing = _TO_CLOSING_QUOTE.match(line, position if is_open else position + 1)
                if closing is None:
                    return True
                position = closing.end()
            position = line.find(self.delimiter, position) + 1
            is_open = False
            if position == 0:
                return False

    def spans(self, body: str) -> list[tuple[int, int]]:
        """Return where the fields of a row stand."""
        spans: list[tuple[int, int]] = []
        position = 0
        while True:
            start = position
            if self.quotes and body.startswith('"', position):
                closing = _TO_CLOSING_QUOTE.match(body, position + 1)
                assert closing is not None
                position = closing.end()
            end = body.find(self.delimiter, position)
            if end < 0:
                return [*spans, (start, len(body))]
            spans.append((start, end))
            position = end + 1

    def cells(self, body: str) -> list[str]:
        """Return the fields of a row as they stand in it."""
        if not self.quotes or '"' not in body:
            return body.split(self.delimiter)
        return [body[start:end] for start, end in self.spans(body)]

    def value(self, cell: str) -> str:
        """Return what a field holds."""
        if not self.quotes or not cell.startswith('"'):
            return cell
        closing = _TO_CLOSING_QUOTE.match(cell, 1)
        assert closing is not None
        return cell[1 : closing.end() - 1].replace('""', '"') + cell[closing.end() :]

    def field(self, text: str) -> str:
        """Return a value as it stands in a file."""
        if not self.quotes:
            return re.sub(rf"[\r\n{self.delimiter}]", " ", text)
        if '"' in text or self.delimiter in text or "\n" in text or "\r" in text:
            return '"' + text.replace('"', '""') + '"'
        return text


def _lines(found: Iterator[Block]) -> Iterator[Row]:
    for block in found:
        last = block.first + len(block.rows) - 1 if block.is_open else -1
        for index, line in enumerate(block.rows, block.first):
            end = "" if index == last else "\n"
            if line.endswith("\r"):
                line, end = line[:-1], "\r" + end
            error = block.errors.get(index) if block.errors else None
            yield Row(line, end, error, index + 1)


class Table:
    """A header, and how rows under it are read and written."""

    def __init__(self, name: str, header: Row, dialect: Dialect, options: IoOptions) -> None:
        self._dialect = dialect
        self._options = options
        self._names = [dialect.value(cell) for cell in dialect.cells(header.body)]
        outputs = output_fields(options)
        self._has_status = outputs.status is not None
        self._has_error = options.on_error == "keep"
        new = [*outputs.names, *filter(None, [outputs.status])]
        new += [ERROR_FIELD] if self._has_error else []
        languages = [field for field in (options.source_field, options.target_field) if field]
        for field in [*options.fields, *languages]:
            self._check_column(name, field)
        for field in new:
            if field in self._names and not outputs.may_replace:
                raise InputError(
                    f"{name}: column {field!r} is there already; choose a name with --output-column"
                )
        self._columns = [self._names.index(field) for field in options.fields]
        self._languages = [(field, self._names.index(field)) for field in languages]
        self._places = [self._names.index(n) if n in self._names else None for n in new]
        self.num_filled = 0
        """Rows that were filled up, beside bad ones."""
        self.first_filled = 0
        self._appends_all = self._places.count(None) == len(new)
        added = [n for n, place in zip(new, self._places, strict=True) if place is None]
        self.head = self._joined(header, [dialect.field(name) for name in added])

    def _check_column(self, name: str, field: str) -> None:
        found = self._names.count(field)
        if found != 1:
            there = ", ".join(map(repr, self._names[:20]))
            raise InputError(
                f"{name}: {'more than one' if found else 'no'} column {field!r} in the header;"
                f" {self._remedy() or f'choose with --column among {there}'}"
            )

    def _remedy(self) -> str | None:
        """Say how to read a header that another delimiter parts."""
        if len(self._names) > 1:
            return None
        own = self._dialect.delimiter
        for format, delimiter in DELIMITERS.items():
            if delimiter != own and delimiter in self._names[0]:
                found = "a tab" if delimiter == "\t" else repr(delimiter)
                return f"{found} parts the columns there; --format {format} reads it"
        return _FROM_SEMICOLONS if ";" in self._names[0] else None

    def _joined(self, row: Row, added: list[str]) -> str:
        delimiter = self._dialect.delimiter
        return row.body + "".join([delimiter + field for field in added]) + row.end

    def record(self, index: int, row: Row) -> Record:
        """Return the record of a row; its origin is the row."""
        options = self._options
        blank: tuple[None, ...] = (None,) * len(self._columns)
        record = Record(index, blank, options.source_lang, options.target_langs, row)
        if not row.body:
            return record
        cells, value = self._dialect.cells(row.body), self._dialect.value
        missing = len(self._names) - len(cells)
        if missing < 0:
            record.error = self._cut(row)
        elif row.error is not None:
            record.error = row.error
        elif missing and max(self._columns) >= len(cells):
            record.error = f"{len(cells)} fields where the header has {len(self._names)}"
        else:
            record.texts = tuple([value(cells[column]) for column in self._columns])
        if missing > 0:
            row.body += self._dialect.delimiter * missing
            if record.error is None:
                self.first_filled = self.first_filled if self.num_filled else index
                self.num_filled += 1
        if self._languages and record.error is None:
            self._set_languages(record, cells)
        return record

    def _cut(self, row: Row) -> str:
        """Drop fields beyond the header, and say so with their text."""
        spans = self._dialect.spans(row.body)
        end = spans[len(self._names) - 1][1]
        beyond = row.body[end + 1 :] if self._has_error else row.body[end + 1 : end + 80]
        row.body = row.body[:end]
        return f"{len(spans)} fields where the header has {len(self._names)}; beyond it: {beyond}"

    def _set_languages(self, record: Record, cells: list[str]) -> None:
        value = self._dialect.value
        named = {name: value(cells[c]) for name, c in self._languages if c < len(cells)}
        try:
            record.source_lang, record.target_langs = row_languages(named, self._options)
        except InputError as error:
            record.texts, record.error = (None,) * len(record.texts), str(error)

    def write(self, translation: Translation) -> str:
        """Return the row of a translation."""
        row: Row = translation.record.origin
        if not row.body:
            return row.end
        values = flat_texts(translation)
        if self._has_status:
            values.append(translation.status)
        if self._has_error:
            values.append(translation.error)
        fields = [self._dialect.field(value or "") for value in values]
        if self._appends_all:
            return self._joined(row, fields)
        old = self._dialect.cells(row.body)
        added = []
        for place, field in zip(self._places, fields, strict=True):
            if place is None:
                added.append(field)
            else:
                old[place] = field
        return self._joined(Row(self._dialect.delimiter.join(old), row.end), added)

    def measure(self, path: Path, max_rows: int | None) -> tuple[int, int]:
        """Count the complete rows of a partial file, at most so many, and their bytes."""
        num_rows = num_bytes = 0
        try:
            for row in self._dialect.rows(blocks(ByteInput(str(path))), str(path)):
                is_enough = max_rows is not None and num_rows > max_rows
                if is_enough or not row.end.endswith("\n"):
                    break
                num_rows += 1
                num_bytes += len((row.body + row.end).encode())
        except InputError:
            pass  # the last row is torn within quotes
        return max(0, num_rows - 1), num_bytes


class DelimitedSource(RowSource):
    """Rows of a CSV or TSV file."""

    def __init__(self, path: str, options: IoOptions, format: Literal["csv", "tsv"]) -> None:
        super().__init__(path, options, format)
        self._dialect = Dialect(DELIMITERS[format], options.quotes)
        self._rows: Iterator[Row] | None = self._all_rows(self._input)
        self._shifts = array("q", [2])  # from a row's index to its line, as rows of lines go by
        self._shifted = array("q", [0])  # the first index of each shift
        if self.num_bytes is not None:
            self.table  # noqa: B018 (a wrong header is found before anything is begun)

    @cached_property
    def table(self) -> Table:
        """The header; that of a pipe is read when it is asked for, as it can be read only once."""
        assert self._rows is not None
        header = next(self._rows, None)
        if header is None or not header.body:
            raise InputError(f"{self.name}: the first line must name the columns, and is empty")
        if header.error is not None:
            raise InputError(
                f"{self.name}: the header has {header.error}; mend it, or the whole file if it is"
                f" Latin-1 ({FROM_LATIN})"
            )
        return Table(self.name, header, self._dialect, self._options)

    def _all_rows(self, source: ByteInput) -> Iterator[Row]:
        return self._dialect.rows(blocks(source), self.name)

    def _count(self, source: ByteInput) -> int:
        return sum(1 for _ in self._all_rows(source)) - 1

    def _records(self, start: int) -> Iterator[Record]:
        record = self.table.record
        rows, self._rows = self._rows, None
        if rows is None:
            if self.num_bytes is None:
                raise UsageError(f"{self.name}: cannot be read twice; give the input as a file")
            rows = self._all_rows(self._input)
            next(rows)
        del self._shifted[1:], self._shifts[1:]
        for index, row in enumerate(rows):
            if row.line - index != self._shifts[-1]:
                self._shifts.append(row.line - index)
                self._shifted.append(index)  # last, for who asks for a place meanwhile
            if index >= start:
                yield record(index, row)

    def note(self) -> str:
        """Tell of the rows read so far that were filled up."""
        num_rows = self.table.num_filled
        if not num_rows:
            return ""
        rows = "1 row" if num_rows == 1 else f"{num_rows:,} rows"
        place = self.place(self.table.first_filled)
        return f"{place}: fewer fields than the header, empty ones are added ({rows})"

    def place(self, index: int) -> str:
        """Name a row that was read for a person: the line on which it begins."""
        return f"{self.name}:{index + self._shifts[bisect_right(self._shifted, index) - 1]}"
