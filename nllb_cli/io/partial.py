"""Unfinished outputs: files of rows beside their targets, renamed only when complete.

`out.txt` is written as `out.txt.part` with the sidecar `out.txt.part.json`. The number of complete
rows in the partial file is the whole checkpoint; a torn last row is cut when a run is resumed.
A run that ends in order leaves in the sidecar how many rows of each status there are.
Partial files are never compressed, so that any of their rows can be read and counted; a target
with a compression suffix is packed at the end.
"""

import contextlib
import fcntl
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.changes import changes, met
from nllb_cli.io.compression import compress, suffix_of
from nllb_cli.io.sidecar import Settings, read_sidecar, sync_folder, write_sidecar
from nllb_cli.io.targets import check_target, part_of, unwritable

Mode = Literal["new", "overwrite", "resume"]
Measure = Callable[[Path, int | None], tuple[int, int]]
"""Returns the complete rows of a partial file, at most so many, and the bytes they take."""

_OUTDATED: Settings = {"is_outdated": True}
"""The sidecar of an output that a run is to replace and has no row for yet."""
_PENDING_CHARS = 1 << 18
_SYNC_S = 30.0


class Partial:
    """The state of an output that may be unfinished: its targets, its sidecar, its settings."""

    def __init__(
        self, targets: list[Path], settings: Settings, mode: Mode, has_error_column: bool = True
    ) -> None:
        self.targets = targets
        self.sidecar = sidecar_of(targets)
        self.is_finished = False
        """True if an earlier run has completed the targets."""
        self.complete_rows: int | None = None
        """Set when all rows are written and only renaming is left."""
        self.is_resumed = False
        """True if rows of an earlier run are to be kept."""
        self.statuses: Counter[str] = Counter()
        """Rows by status, those of earlier runs included; fewer than all if one did not end."""
        self._settings = settings
        self._has_error_column = has_error_column
        for target in targets:
            check_target(target)
        if mode == "overwrite":
            self._forget()
        found = read_sidecar(self.sidecar)
        if mode == "new":
            self._refuse_existing(found)
        elif mode == "resume":
            self._resume(found)

    def _refuse_existing(self, found: Settings | None) -> None:
        for target in self.targets:
            if found is not None or part_of(target).exists():
                raise UsageError(
                    f"{part_of(target)}: left by an unfinished run;"
                    " --resume continues it, --overwrite starts again"
                )
            if target.exists():
                raise UsageError(f"{target}: exists; choose another name or --overwrite")

    def _resume(self, found: Settings | None) -> None:
        if found is None:
            for target in self.targets:
                if part_of(target).exists():
                    raise UsageError(
                        f"{part_of(target)}: cannot be resumed without {self.sidecar.name};"
                        " start again with --overwrite"
                    )
            self.is_finished = all(target.exists() for target in self.targets)
            if not self.is_finished:
                self._refuse_existing(None)
            return
        if found == _OUTDATED:
            self._forget()
            return
        told = changes(met(found, self._settings, self._has_error_column), self._settings)
        if told:
            raise UsageError(
                f"{self.sidecar}: belongs to another run ({'; '.join(told)});"
                " run it as before, or start again with --overwrite"
            )
        self.is_resumed = True
        self.complete_rows = found.get("complete_rows")
        self.statuses.update(found.get("statuses", {}))

    def _forget(self) -> None:
        """Remove what an earlier run has left; finished targets stay until they are replaced."""
        for target in self.targets:
            part_of(target).unlink(missing_ok=True)
        with contextlib.suppress(InputError):  # it is damaged
            if read_sidecar(self.sidecar) == _OUTDATED:
                return  # without it they would look complete until `begin`
        self.sidecar.unlink(missing_ok=True)

    def begin(self) -> None:
        """Write the sidecar, before the first row."""
        _write(self.sidecar, {"settings": self._settings})

    def statuses_of(self, num_rows: int) -> dict[str, int]:
        """Return the statuses of so many rows; of none if others were counted, as by a crash."""
        if self.statuses.total() != num_rows:
            self.statuses.clear()
        return dict(self.statuses)

    def pause(self, num_rows: int) -> None:
        """Note how the rows went that are on disk, for the run that continues."""
        if not self.sidecar.exists():
            return  # it has ended
        with contextlib.suppress(OSError):  # the rows are safe without it
            write_sidecar(self.sidecar, self._content(num_rows))

    def _content(self, num_rows: int) -> Settings:
        complete = {} if self.complete_rows is None else {"complete_rows": self.complete_rows}
        counted = {"statuses": self.statuses} if self.statuses.total() == num_rows else {}
        return {"settings": self._settings, **complete, **counted}

    def complete(self, num_rows: int) -> None:
        """Note that all rows are on disk, before the first target is renamed."""
        self.complete_rows = num_rows
        _write(self.sidecar, self._content(num_rows))

    def end(self) -> None:
        """Remove the sidecar, after the last target was renamed."""
        self.sidecar.unlink(missing_ok=True)
        sync_folder(self.sidecar.parent)


def outdate(targets: list[Path]) -> None:
    """Note of an output, if it stands, that a run replaces it: nothing that is there counts.

    Targets stay until they are replaced, but no longer look complete.
    """
    if is_unfinished(targets) or any(target.exists() for target in targets):
        _write(sidecar_of(targets), _OUTDATED)
        for target in targets:
            part_of(target).unlink(missing_ok=True)


def _write(sidecar: Path, content: Settings) -> None:
    try:
        write_sidecar(sidecar, content)
    except OSError as error:
        raise unwritable(sidecar, error) from None


def is_complete(targets: list[Path]) -> bool:
    """Whether an earlier run has completed an output: all is there, and nothing unfinished."""
    return not sidecar_of(targets).exists() and all(
        target.exists() and not part_of(target).exists() for target in targets
    )


def is_unfinished(targets: list[Path]) -> bool:
    """Whether an earlier run has begun an output and not completed it."""
    return any(path.exists() for path in (sidecar_of(targets), *map(part_of, targets)))


def sidecar_of(targets: list[Path]) -> Path:
    """Return the path of the sidecar of an output."""
    return targets[0].with_name(targets[0].name + ".part.json")


class RowFile:
    """A growing file of rows: pending ones in memory, the others in its partial file or a pipe."""

    def __init__(self, fd: int, name: str, errors: str) -> None:
        self.num_rows = 0
        """Rows that were handed over, those of earlier runs included."""
        self._safe_rows: int | None = None
        self._is_torn = False
        self._fd = fd
        self._name = name
        self._errors = errors
        self._pending: list[str] = []
        self._pending_chars = 0

    def put(self, text: str) -> None:
        """Take text that is no row."""
        self._pending.append(text)

    def extend(self, rows: Sequence[str]) -> None:
        """Take rows with their ends; what goes out at once is little, so that much is safe."""
        num_chars = self._pending_chars + sum(map(len, rows))
        if num_chars > _PENDING_CHARS and len(rows) > 1:
            middle = len(rows) // 2
            self.extend(rows[:middle])
            self.extend(rows[middle:])
            return
        self._pending += rows
        self._pending_chars = num_chars
        self.num_rows += len(rows)
        if num_chars > _PENDING_CHARS:
            self.flush()

    def flush(self) -> None:
        """Hand pending rows to the operating system."""
        if not self._pending:
            return
        if self._is_torn:
            raise InputError(f"{self._name}: cannot go on after a row that is written in part")
        text = "".join(self._pending)
        self._pending, self._pending_chars = [], 0
        self._is_torn = True
        try:
            write_all(self._fd, text.encode("utf-8", self._errors))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unwritable(self._name, error, self._safe_rows) from None
        self._is_torn = False
        if self._safe_rows is not None:
            self._safe_rows = self.num_rows

    def close(self) -> None:
        """Write what is pending and leave the file as it is."""
        self.flush()


def write_all(fd: int, data: bytes) -> None:
    """Write everything, also where the kernel takes less at a time."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # somebody has made the pipe non-blocking
            select.select([], [fd], [])


class PartialFile(RowFile):
    """A row file that takes the place of its target when it is complete."""

    def __init__(self, target: Path, errors: str) -> None:
        self.target = target
        self.part = part_of(target)
        try:
            fd = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise unwritable(self.part, error) from None
        super().__init__(fd, str(self.part), errors)
        self._safe_rows = 0
        self._last_sync = time.monotonic()
        lock(fd, self.part)

    @property
    def is_empty(self) -> bool:
        """True if nothing is on disk."""
        return os.fstat(self._fd).st_size == 0

    def cut(self, num_rows: int, num_bytes: int) -> None:
        """Drop what stands after so many rows and bytes."""
        os.ftruncate(self._fd, num_bytes)
        self.num_rows = self._safe_rows = num_rows

    def flush(self) -> None:
        """Hand pending rows to the operating system, and now and then to the disk."""
        super().flush()
        if time.monotonic() - self._last_sync > _SYNC_S:
            self._sync()

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise unwritable(self.part, error, self._safe_rows) from None
        self._last_sync = time.monotonic()

    def complete(self) -> None:
        """Bring all rows to the disk."""
        self.flush()
        assert not self._is_torn
        self._sync()

    def publish(self) -> None:
        """Put the complete file in the target's place."""
        try:
            pack(self.part, self.target)
            sync_folder(self.target.parent)
        except OSError as error:
            raise unwritable(self.target, error, self._safe_rows) from None
        os.close(self._fd)

    def close(self) -> None:
        """Write what is pending and leave the partial file for a later run."""
        try:
            if not self._is_torn:
                self.flush()
                self._sync()
        finally:
            os.close(self._fd)


def pack(part: Path, target: Path) -> None:
    """Rename a complete file to its target, compressed if the target's suffix says so."""
    suffix = suffix_of(target.name)
    if suffix:
        packed = part.with_name(part.name + suffix)
        with open(part, "rb") as source, open(packed, "wb") as file:
            compress(source, file, suffix)
            file.flush()
            os.fsync(file.fileno())
        os.replace(packed, target)
        part.unlink()
    else:
        os.replace(part, target)


def lock(fd: int, path: Path) -> None:
    """Refuse an output that another process is writing, where the file system can tell."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise UsageError(f"{path}: another nllb is writing it; wait, or choose a name") from None
    except OSError:
        pass  # no locks on this file system


def open_partials(partial: Partial, errors: str, measure: Measure) -> list[PartialFile]:
    """Open the partial files of an output, cut to the rows that all of them have."""
    targets = partial.targets
    if partial.complete_rows is not None:
        targets = [target for target in targets if part_of(target).exists()]
        files = [PartialFile(target, errors) for target in targets]
        for file in files:
            file.num_rows = partial.complete_rows
        return files
    files = [PartialFile(target, errors) for target in targets]
    rows = min(measure(file.part, None)[0] for file in files)
    for file in files:
        file.cut(*measure(file.part, rows))
    return files


def close_all(files: list[Any]) -> None:
    """Close files, each of them even if another fails."""
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.callback(file.close)
