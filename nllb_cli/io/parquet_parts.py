"""The numbered parts in which new Parquet columns wait for their file to be complete."""

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.partial import lock
from nllb_cli.io.sidecar import sync_folder
from nllb_cli.io.targets import unwritable

_OWN_NAME = re.compile(r"\d{6}\.(parquet|tmp)")


class Parts:
    """Rows of text columns in closed files `NAME.parts/000000.parquet` and so on."""

    def __init__(self, target: Path, names: list[str]) -> None:
        self.folder = target.with_name(target.name + ".parts")
        self._names = names
        self._num_parts = 0
        self._num_rows = 0
        self._lock: int | None = None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}.parquet"

    def open(self) -> int:
        """Count the rows of the parts that are whole and follow each other; drop the others."""
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            lock(self._lock, self.folder)
            for path in self._own_files():
                self._take_or_drop(path)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        return self._num_rows

    def count(self) -> int:
        """Count the rows that `open` would find, and change nothing."""
        num_rows = 0
        for number in itertools.count():
            try:
                num_rows += pq.read_metadata(self._path(number)).num_rows
            except (pa.ArrowException, OSError):
                break
        return num_rows

    def _own_files(self) -> list[Path]:
        """List the files of the folder, and refuse one that holds anything else."""
        paths = sorted(self.folder.iterdir())
        for path in paths:
            if not _OWN_NAME.fullmatch(path.name):
                raise UsageError(f"{path}: not of nllb; move it away, this folder is needed")
        return paths

    def _take_or_drop(self, path: Path) -> None:
        if path == self._path(self._num_parts):
            try:
                self._num_rows += pq.read_metadata(path).num_rows
                self._num_parts += 1
                return
            except (pa.ArrowException, OSError):
                pass
        path.unlink()

    def append(self, rows: Sequence[Sequence[str | None]]) -> None:
        """Write rows as the next part and bring it to the disk."""
        columns = zip(*rows, strict=True)
        table = pa.table({name: _array(c) for name, c in zip(self._names, columns, strict=True)})
        path = self._path(self._num_parts)
        temporary = path.with_suffix(".tmp")
        try:
            with open(temporary, "wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(self.folder)
        except OSError as error:
            raise unwritable(path, error, self._num_rows) from None
        self._num_parts += 1
        self._num_rows += len(rows)

    def columns(self) -> "PartRows":
        """Read the rows again, from the first."""
        return PartRows([self._path(n) for n in range(self._num_parts)], self._names)

    def remove(self) -> None:
        """Delete the folder and all parts."""
        self.close()
        if self.folder.exists():
            for path in self._own_files():
                path.unlink()
            self.folder.rmdir()

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class PartRows:
    """The rows of parts in order, in slices of any length."""

    def __init__(self, paths: list[Path], names: list[str]) -> None:
        self._paths = iter(paths)
        self._rest: Any = pa.table({name: _array([]) for name in names})

    def take(self, num_rows: int) -> Any:
        """Return a table of the next rows, in one chunk whatever the parts were."""
        tables = [self._rest]
        while sum(table.num_rows for table in tables) < num_rows:
            path = next(self._paths)
            try:
                tables.append(pq.read_table(path))
            except (pa.ArrowException, OSError) as error:
                text = str(error).splitlines()[0]
                raise InputError(f"{path}: damaged ({text}); start with --overwrite") from None
        table = pa.concat_tables(tables).combine_chunks()
        self._rest = table.slice(num_rows)
        return table.slice(0, num_rows)


def _array(values: Sequence[str | None]) -> Any:
    try:
        return pa.array(values, pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):  # a lone surrogate, which Parquet cannot hold
        clean = [v and v.encode("utf-8", "replace").decode() for v in values]
        return pa.array(clean, pa.string())
