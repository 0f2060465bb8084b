"""Which inputs there are, and where the translations of each go."""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nllb_cli.errors import InputError, NllbError, UsageError
from nllb_cli.io.compression import with_target, without_suffix
from nllb_cli.io.formats import format_of
from nllb_cli.io.rows import STDIN
from nllb_cli.io.targets import UNFINISHED, is_same_file
from nllb_cli.options import IoOptions

_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class Job:
    """One input and where its translations go."""

    input: str
    output: str | None
    """None is stdout; `{tgt}` stands for the target language."""


@dataclass(frozen=True, slots=True)
class _Input:
    path: str
    name: str
    """Path below the output directory."""


def plan(
    inputs: list[str],
    output: str | None,
    output_dir: str | None,
    *,
    format: str | None = None,
    has_file_per_target: bool = False,
) -> list[Job]:
    """List the jobs of a command line; a file that folders or globs find again counts once.

    Raises:
        UsageError: inputs and outputs do not fit each other, or an input is named twice.
        InputError: an input does not exist.
    """
    if output is not None and output_dir is not None:
        raise UsageError("-o and --output-dir: choose one of them")
    for index, name in enumerate(inputs):
        if name in inputs[:index] and not os.path.isdir(name):
            raise UsageError(f"{name}: named twice; each input is translated once")
    found = list({item.path: item for item in _find(inputs, format, output_dir)}.values())
    if output_dir is not None:
        jobs = [
            Job(item.path, _below(output_dir, item.name, has_file_per_target)) for item in found
        ]
        _refuse_stdin(found)
        _refuse_same_output(jobs)
        return jobs
    if output in (None, STDIN) and len(found) > 1:
        _refuse_what_does_not_join([format_of(item.path, format) for item in found])
    elif output is not None and len(found) > 1:
        raise UsageError(
            f"-o {output}: there are {len(found)} inputs; --output-dir DIR writes a file for each"
        )
    jobs = [Job(item.path, output) for item in found]
    for job in jobs:
        if job.output is not None and job.output != STDIN and is_same_file(job.input, job.output):
            raise UsageError(f"-o {job.output}: this is the input; choose another name")
    return jobs


def refuse_fields_of_lines(jobs: list[Job], format: str | None, options: IoOptions) -> None:
    """Refuse options about fields where no input has any.

    Raises:
        UsageError: names the option.
    """
    if any(format_of(job.input, format) != "lines" for job in jobs):
        return
    asked = {
        "--field": options.fields if options.fields != IoOptions().fields else None,
        "--output-field": options.output_field,
        "--src-field": options.source_field,
        "--tgt-field": options.target_field,
    }
    for flag, value in asked.items():
        if value:
            raise UsageError(f"{flag}: lines have no fields; --format says what the input is")


def refuse_own_files(jobs: list[Job], record: str | None, log: str | None) -> None:
    """Refuse a record or log that would be written into an input, an output or one another.

    Raises:
        UsageError: names the option.
    """
    for flag, path in (("--record", record), ("--log-json", log)):
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        for job in jobs:
            if is_same_file(path, job.input):
                raise UsageError(f"{flag} {path}: this is an input; choose another name")
            if job.output not in (None, STDIN) and _belongs_to(path, str(job.output)):
                raise UsageError(f"{flag} {path}: this is an output; choose another name")
    if (
        record
        and log
        and is_same_file(record, log)
        and (os.path.isfile(log) or not os.path.exists(log))
    ):
        raise UsageError(f"--record and --log-json: both are {record}; choose two names")


def _belongs_to(path: str, output: str) -> bool:
    """Whether a file is an output for some target, its statuses, or its unfinished form."""
    names = [output, output.replace(".{tgt}", "") + ".status"]
    forms = "|".join(re.escape(os.path.realpath(name)).replace(r"\{tgt\}", ".+") for name in names)
    is_named = re.fullmatch(rf"(?:{forms})(?:\.part(?:\.json)?)?", os.path.realpath(path))
    return is_named is not None or is_same_file(path, output)


def _find(inputs: list[str], format: str | None, output_dir: str | None) -> Iterator[_Input]:
    for name in inputs:
        if name == STDIN:
            yield _Input(STDIN, STDIN)
        elif os.path.isdir(name):
            yield from _in_folder(name, format, output_dir)
        elif not os.path.lexists(name) and any(letter in name for letter in _MAGIC):
            yield from _matching(name)
        else:
            if not os.path.exists(name):
                raise InputError(f"{name}: no such file")
            yield _Input(name, os.path.basename(name))


def _in_folder(folder: str, format: str | None, output_dir: str | None) -> Iterator[_Input]:
    """Files of known suffixes below a folder, or all files if a format is named."""
    num_found = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and not name.endswith(".parts")  # a Parquet run of ours that is not complete
            and not (output_dir and is_same_file(os.path.join(root, name), output_dir))
        )
        for file in sorted(files):
            path = os.path.join(root, file)
            if file.startswith(".") or UNFINISHED.search(file):
                continue
            if format is not None or _has_known_suffix(path):
                num_found += 1
                yield _Input(path, os.path.relpath(path, folder))
    if not num_found:
        raise InputError(
            f"{folder}: no files of a known suffix in this folder; --format NAME takes them all"
        )


def _matching(pattern: str) -> Iterator[_Input]:
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not paths:
        raise InputError(f"{pattern}: no file matches")
    fixed = []
    for part in Path(pattern).parts:
        if any(letter in part for letter in _MAGIC):
            break
        fixed.append(part)
    base = os.path.join(*fixed) if fixed else ""
    for path in paths:
        yield _Input(path, os.path.relpath(path, base or "."))


def _has_known_suffix(path: str) -> bool:
    try:
        return format_of(path) != "lines" or without_suffix(path).lower().endswith(".txt")
    except NllbError:
        return False


def _below(folder: str, name: str, has_file_per_target: bool) -> str:
    path = os.path.join(folder, name)
    if not has_file_per_target or format_of(name) != "lines":
        return path
    return with_target(path)


def _refuse_what_does_not_join(formats: list[str]) -> None:
    if len(set(formats)) > 1 or formats[0] not in ("lines", "jsonl"):
        raise UsageError(
            f"{len(formats)} inputs of {', '.join(sorted(set(formats)))} make no single output; "
            "--output-dir DIR writes a file for each"
        )


def _refuse_stdin(inputs: list[_Input]) -> None:
    if any(item.path == STDIN for item in inputs):
        raise UsageError("--output-dir: stdin has no name; -o FILE takes its translations")


def _refuse_same_output(jobs: list[Job]) -> None:
    inputs: dict[str | None, str] = {}
    for job in jobs:
        first = inputs.setdefault(job.output, job.input)
        if first != job.input:
            raise UsageError(f"{job.output}: both {first} and {job.input} would be written there")
        if job.output is not None and is_same_file(job.input, job.output):
            raise UsageError(f"{job.output}: this is an input; choose another --output-dir")
