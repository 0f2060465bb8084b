"""Paths of outputs: which can be written, and where their unfinished files stand."""

import os
import re
from pathlib import Path

from nllb_cli.errors import InputError, UsageError

UNFINISHED = re.compile(r"\.part(\.json(\.tmp)?|\.gz|\.bz2|\.xz|\.zst)?$")
"""What a run of ours that is not complete has left: rows, sidecar, a file half packed."""


def part_of(target: Path) -> Path:
    """Return the path of the partial file of a target."""
    return target.with_name(target.name + ".part")


def check_target(target: Path, makes_folders: bool = False) -> None:
    """Refuse a target that cannot be written whatever happens.

    Raises:
        UsageError: it is no file or named as unfinished ones are, or its folder is missing or none.
        InputError: the system does not say.
    """
    found = UNFINISHED.search(target.name)
    if found is not None:  # another output's run would take it for its own
        raise UsageError(f"{target}: unfinished outputs end in {found[0]}; choose another name")
    folder = target.parent
    while makes_folders and not os.path.lexists(folder):
        folder = folder.parent
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; choose another name")
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; make it first")
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name a file in it")
    if target.exists() and not target.is_file():  # a device would be replaced by a file
        raise UsageError(f"{target}: is no file; leave -o out and write > {target}")
    try:
        part_of(target).exists()
    except OSError as error:
        raise unwritable(target, error) from None


def unwritable(path: Path | str, error: OSError, num_rows: int | None = None) -> InputError:
    """Return the error for a file that cannot be written, with what is safe."""
    safe = f"; {num_rows:,} rows are safe, mend it and continue with --resume" if num_rows else ""
    return InputError(f"{path}: cannot be written ({error.strerror}){safe}")


def is_same_file(path: str, other: str) -> bool:
    """Return whether both name one file, also under two names of it or where it is not there."""
    if os.path.isfile(path) and os.path.isfile(other) and os.path.samefile(path, other):
        return True
    return os.path.realpath(path) == os.path.realpath(other)
