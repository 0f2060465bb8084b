"""The small file beside an unfinished output that says which run it belongs to."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nllb_cli.errors import InputError

_SAMPLE_BYTES = 1 << 18
_NUM_SAMPLES = 16
WHOLE_BYTES = _SAMPLE_BYTES * _NUM_SAMPLES
"""Of a file that is no larger the samples leave nothing out."""

Settings = Mapping[str, Any]
"""JSON values by name; nested objects are compared name by name."""


def fingerprint(path: str) -> dict[str, Any]:
    """Return size, modification time and a hash of samples (head and tail among them) of a file."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.sha256()
            last = max(0, status.st_size - _SAMPLE_BYTES)
            for number in range(_NUM_SAMPLES):
                file.seek(last * number // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); check the path and its rights"
        ) from None
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "sample": digest.hexdigest()[:16],
    }


def is_same_content(old: Settings, new: Settings) -> bool:
    """Return whether two fingerprints are of the same bytes.

    The samples of a small file are all of it, so that its time says nothing more.
    """
    has_same_bytes = all(old[name] == new[name] for name in ("size", "sample"))
    is_whole = new["size"] <= WHOLE_BYTES
    return has_same_bytes and (is_whole or old["mtime_ns"] == new["mtime_ns"])


def read_sidecar(path: Path) -> dict[str, Any] | None:
    """Return the content of a sidecar, or None if there is none.

    Raises:
        InputError: it is damaged.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its rights") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{path}: damaged; start again with --overwrite")
    return content


def write_sidecar(path: Path, content: Settings) -> None:
    """Put a sidecar in place at one stroke: a crash leaves the old one or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the file system can do that."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse; the rename itself has been done
    finally:
        os.close(fd)
