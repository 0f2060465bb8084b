"""A Parquet file as batches of rows; of what is damaged the place is named."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.sidecar import fingerprint

MAX_GROUP_ROWS = 1 << 17
MAX_GROUP_BYTES = 1 << 28
BATCH_ROWS = 2048
_BUFFER_BYTES = 1 << 18
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what Arrow raises over a damaged file into one line."""
    try:
        yield
    except _ARROW_ERRORS as error:
        raise damaged(name, _first_line(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def damaged(name: str, reason: str) -> InputError:
    return InputError(f"{name}: damaged or not a Parquet file ({reason}); fetch or write it again")


class ParquetFile:
    """A Parquet file and its rows in batches."""

    def __init__(self, path: str) -> None:
        self.path = self.name = path
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UsageError(f"{path}: Parquet cannot come from a pipe; give the input as a file")
        self.mark = fingerprint(path)
        """What the file was when it was opened."""
        with readable(path):
            self._file = pa.OSFile(path, "r")
            self._parquet = pq.ParquetFile(self._file, buffer_size=_BUFFER_BYTES)
            self.schema: Any = self._parquet.schema_arrow
            self.metadata: Any = self._parquet.metadata
            self.num_rows: int = self.metadata.num_rows
            groups = range(self.metadata.num_row_groups)
            if sum(self.metadata.row_group(group).num_rows for group in groups) != self.num_rows:
                raise ValueError("its row groups have not the rows that it names")
            self.codecs: dict[str, str] = self._codecs()
            """Compression of each leaf column by its path; empty if there are no rows."""

    def _codecs(self) -> dict[str, str]:
        groups = (self.metadata.row_group(n) for n in range(self.metadata.num_row_groups))
        for number, group in enumerate(groups):
            if group.num_rows:
                # Arrow ends the process if it is asked for the metadata of a damaged column
                # before a read of that column has found the damage.
                if next(self._parquet.iter_batches(1, row_groups=[number]), None) is None:
                    raise ValueError(f"row group {number + 1} gives no rows")
                columns = [group.column(n) for n in range(group.num_columns)]
                return {column.path_in_schema: _codec(column.compression) for column in columns}
        return {}

    @property
    def max_group_rows(self) -> int:
        """Rows of a row group that are held at once when the file is copied."""
        groups = (self.metadata.row_group(n) for n in range(self.metadata.num_row_groups))
        row_bytes = [int(g.total_byte_size // g.num_rows) for g in groups if g.num_rows]
        return min(MAX_GROUP_ROWS, max(1, MAX_GROUP_BYTES // max([1, *row_bytes])))

    def batches(
        self, start: int, stop: int | None, columns: list[str] | None, max_rows: int
    ) -> Iterator[Any]:
        """Yield record batches of the asked-for rows; none spans two row groups."""
        stop = self.num_rows if stop is None else min(stop, self.num_rows)
        first = 0
        for group in range(self.metadata.num_row_groups):
            num_rows = self.metadata.row_group(group).num_rows
            if first + num_rows > start and first < stop:
                yield from self._group_batches(group, first, (start, stop), columns, max_rows)
            first += num_rows

    def _group_batches(
        self,
        group: int,
        first: int,
        wanted: tuple[int, int],
        columns: list[str] | None,
        max_rows: int,
    ) -> Iterator[Any]:
        end = first + self.metadata.row_group(group).num_rows
        with self._readable_group(group, columns):
            batches = self._parquet.iter_batches(max_rows, row_groups=[group], columns=columns)
        while True:
            with self._readable_group(group, columns):
                batch = next(batches, None)
            if batch is None or first >= wanted[1]:
                break
            low, high = max(wanted[0] - first, 0), min(wanted[1] - first, batch.num_rows)
            first += batch.num_rows
            if low < high:
                yield batch.slice(low, high - low)
        if batch is None and first != end:
            raise damaged(self.name, f"row group {group + 1} ends {end - first} rows too early")

    @contextmanager
    def _readable_group(self, group: int, columns: list[str] | None) -> Iterator[None]:
        """Turn what Arrow raises into one line that names the row group and the bad columns."""
        try:
            yield
        except _ARROW_ERRORS as error:
            bad = [name for name in columns or self.schema.names if not self._reads(group, name)]
            where = f"row group {group + 1}" + "".join(f", column {name!r}" for name in bad[:3])
            raise damaged(self.name, f"{where}: {_first_line(error)}") from None

    def _reads(self, group: int, column: str) -> bool:
        try:
            for _ in self._parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=[column]):
                pass
        except _ARROW_ERRORS:
            return False
        return True

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def _codec(name: str) -> str:
    return "none" if name == "UNCOMPRESSED" else name.lower()
