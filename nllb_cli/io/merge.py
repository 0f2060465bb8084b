"""Put the shards of an output together again, in the order given."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.delimited import DELIMITERS, Dialect
from nllb_cli.io.formats import format_of
from nllb_cli.io.lines import STATUS_SUFFIX
from nllb_cli.io.partial import Partial, pack
from nllb_cli.io.rows import ByteInput, blocks, line_chunks
from nllb_cli.io.sidecar import sync_folder
from nllb_cli.io.targets import is_same_file, part_of, unwritable

Copy = Callable[[Sequence[str], BinaryIO], int]
"""Writes the rows of files into one and returns how many there are."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What was put together."""

    num_rows: int
    num_shards: int
    lacking: str | None = None
    """The status file that is not there, where other shards have one: none was merged."""
    removed: str | None = None
    """The status file of the output that was replaced, where this one has none."""


def merge(
    shards: Sequence[str],
    target: str,
    *,
    format: str | None = None,
    overwrite: bool = False,
    quotes: bool = True,
) -> Merged:
    """Write the rows of all shards into one file; those of lines' status files beside it.

    The status file of an output that is replaced goes with it.

    Raises:
        UsageError: the target exists or is a shard, or formats differ.
        InputError: a shard cannot be read, has other columns than the first, or other statuses
            than rows.
    """
    if any(is_same_file(shard, target) for shard in shards):
        raise UsageError(f"{target}: this is a shard; choose another -o")
    formats = {format_of(path, format) for path in [*shards, target]}
    if len(formats) != 1:
        raise UsageError(f"{target}: shards and target must have one format; name it with --format")
    chosen = formats.pop()
    sources, lacking, removed = {target: shards}, None, None
    if chosen == "lines":
        lacking = _add_statuses(sources, target)
        status = target + STATUS_SUFFIX
        removed = status if status not in sources and os.path.isfile(status) else None
    targets = [Path(name) for name in (*sources, *filter(None, [removed]))]
    Partial(targets, {}, "overwrite" if overwrite else "new").end()
    copy: Copy
    if chosen == "parquet":
        from nllb_cli.io.parquet import merge_files

        copy = merge_files
    elif chosen in DELIMITERS:
        dialect = Dialect(DELIMITERS[chosen], quotes)

        def copy(shards: Sequence[str], file: BinaryIO) -> int:
            return _copy_tables(shards, file, dialect)
    else:
        copy = _copy_lines
    return Merged(_publish(sources, copy, removed), len(shards), lacking, removed)


def _add_statuses(sources: dict[str, Sequence[str]], target: str) -> str | None:
    """Add the status files of shards that are lines, or return the one that is not there."""
    found = [shard + STATUS_SUFFIX for shard in sources[target]]
    lacking = [path for path in found if not os.path.isfile(path)]
    if not lacking:
        sources[target + STATUS_SUFFIX] = found
    return lacking[0] if lacking and len(lacking) < len(found) else None


def _publish(sources: dict[str, Sequence[str]], copy: Copy, removed: str | None) -> int:
    """Write all targets, each from its files, then put them in their places, and remove another."""
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        for name, paths in sources.items():
            target = Path(name)
            stack.callback(part_of(target).unlink, missing_ok=True)
            try:
                with open(part_of(target), "wb") as file:
                    counts[name] = copy(paths, file)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise unwritable(target, error) from None
        first, *others = counts
        for name in others:
            if counts[name] != counts[first]:
                raise InputError(
                    f"{sources[name][0]}: it and the other status files have {counts[name]:,} "
                    f"rows, their shards {counts[first]:,}; mend them, or move them away"
                )
        if removed is not None:  # at no moment it stands beside other rows than its own
            Path(removed).unlink()
        for target in map(Path, counts):
            try:
                pack(part_of(target), target)
                sync_folder(target.parent)
            except OSError as error:
                raise unwritable(target, error) from None
    return counts[first]


def _copy_lines(shards: Sequence[str], file: BinaryIO) -> int:
    num_rows = 0
    is_open = False
    for shard in shards:
        for chunk in line_chunks(ByteInput(shard)):
            if is_open:
                file.write(b"\n")
            file.write(chunk)
            is_open = not chunk.endswith(b"\n")
            num_rows += chunk.count(b"\n") + is_open
    return num_rows


def _copy_tables(shards: Sequence[str], file: BinaryIO, dialect: Dialect) -> int:
    num_rows = 0
    header = None
    end = "\n"
    for shard in shards:
        for number, row in enumerate(dialect.rows(blocks(ByteInput(shard)), shard)):
            if row.error is not None:
                raise InputError(f"{shard}:{row.line}: {row.error}; mend it")
            if number:
                num_rows += 1
            elif header is None:
                header = row.body
            elif header == row.body:
                continue
            else:
                raise InputError(f"{shard}: its columns are not those of {shards[0]}; merge apart")
            file.write((("" if end else "\n") + row.body + row.end).encode())
            end = row.end
    return num_rows
