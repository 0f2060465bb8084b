"""What a run is: the settings that must be equal when it is resumed, and its record in JSON."""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from nllb_cli import __version__
from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.changes import changes, met
from nllb_cli.io.formats import TABLES, format_of
from nllb_cli.io.rows import STDIN
from nllb_cli.io.sidecar import fingerprint
from nllb_cli.options import DecodeOptions, IoOptions
from nllb_cli.plan import Job

PACKAGES = ("torch", "triton", "sentencepiece", "safetensors", "pyarrow", "numpy")


def model_mark(directory: Path) -> dict[str, str]:
    """Return size and sampled hash of each file that decides what a model says."""
    marks = {}
    for path in sorted(directory.iterdir()):
        if path.suffix in (".safetensors", ".bin", ".json", ".model") and path.is_file():
            mark = fingerprint(str(path))
            marks[path.name] = f"{mark['size']}-{mark['sample'][:16]}"
    return marks


def settings(
    model: Mapping[str, str],
    io: IoOptions,
    decode: DecodeOptions,
    numbers: Mapping[str, Any],
    rows: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what must be equal when a run is resumed, as JSON values."""
    return _plain(
        {
            "version": __version__,
            "model": dict(model),
            "rows": {**asdict(io), **rows},
            "search": asdict(decode),
            "numbers": dict(numbers),
        }
    )


def versions() -> dict[str, str]:
    """Return the versions of what takes part in a run."""
    found = {"nllb": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def inputs(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return each input's fingerprint and its output."""
    found = []
    for job in jobs:
        is_file = job.input != STDIN and os.path.isfile(job.input)
        mark = fingerprint(job.input) if is_file else {}
        found.append({"input": job.input, "output": job.output, **mark})
    return found


def refuse_changed(path: str, complete: Sequence[Job], settings: Mapping[str, Any]) -> None:
    """Compare completed outputs with the record of the run that may have made them.

    Raises:
        UsageError: another run, or another input, has made one of them; the text says what changed.
    """
    try:
        record = json.loads(Path(path).read_bytes())
        made = {entry["output"]: entry for entry in record["inputs"]}
        before = record["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # no record of an earlier run
    for job, now in zip(complete, inputs(complete), strict=True):
        if job.output in made:
            is_table = format_of(job.input, settings.get("rows", {}).get("format")) in TABLES
            was = met({"settings": before}, settings, is_table)
            told = changes({**was, "input": made[job.output]}, {**settings, "input": now})
            if told:
                raise UsageError(
                    f"{job.output}: complete, but {path} says of another run "
                    f"({'; '.join(told)}); run it as before, or start again with --overwrite"
                )


def check_record(path: str) -> None:
    """Find out before a long run whether its record can be written.

    Raises:
        InputError: it cannot.
    """
    folder = os.path.dirname(path) or "."
    if is_stream(path) and not os.path.isdir(path):
        return  # a pipe or device: whether it takes anything shows when it is written to
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        reason = "a folder" if os.path.isdir(path) else f"{folder} is no folder to write to"
        raise InputError(f"--record {path}: cannot be written ({reason})")


def is_stream(path: str) -> bool:
    """Whether a record's path is a pipe or device, which takes one record a run."""
    return os.path.exists(path) and not os.path.isfile(path)


def write_record(path: str, content: Mapping[str, Any]) -> None:
    """Write the record of a run; a crash leaves the old one or the new one.

    What is no file, such as a pipe or `/dev/stderr`, is written to as it is.
    """
    is_direct = is_stream(path)
    temporary = path if is_direct else f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")
        if not is_direct:
            os.replace(temporary, path)
    except OSError as error:
        if not is_direct:
            with contextlib.suppress(OSError):
                os.remove(temporary)
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def command() -> list[str]:
    """Return the command line as a person would write it."""
    return ["nllb", *sys.argv[1:]]


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON gives back for it."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
