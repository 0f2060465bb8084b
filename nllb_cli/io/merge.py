"""Put the shards of an output together again, in the order given."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.delimited import DELIMITERS, Dialect
from nllb_cli.io.formats import format_of
from nllb_cli.io.partial import Partial, is_same_file, pack, part_of, unwritable
from nllb_cli.io.rows import ByteInput, blocks, line_chunks
from nllb_cli.io.sidecar import sync_folder


def merge(
    shards: Sequence[str],
    target: str,
    *,
    format: str | None = None,
    overwrite: bool = False,
    quotes: bool = True,
) -> int:
    """Write the rows of all shards into one file and return how many there are.

    Raises:
        UsageError: the target exists or is a shard, or formats differ.
        InputError: a shard cannot be read, or has other columns than the first.
    """
    if any(is_same_file(shard, target) for shard in shards):
        raise UsageError(f"{target}: this is a shard; choose another -o")
    formats = {format_of(path, format) for path in [*shards, target]}
    if len(formats) != 1:
        raise UsageError(f"{target}: shards and target must have one format; name it with --format")
    chosen = formats.pop()
    partial = Partial([Path(target)], {}, "overwrite" if overwrite else "new")
    copy: Callable[[Sequence[str], BinaryIO], int]
    if chosen == "parquet":
        from nllb_cli.io.parquet import merge_files

        copy = merge_files
    elif chosen in DELIMITERS:
        dialect = Dialect(DELIMITERS[chosen], quotes)

        def copy(shards: Sequence[str], file: BinaryIO) -> int:
            return _copy_tables(shards, file, dialect)
    else:
        copy = _copy_lines
    return _publish(partial.targets[0], shards, copy)


def _publish(
    target: Path, shards: Sequence[str], copy: Callable[[Sequence[str], BinaryIO], int]
) -> int:
    part = part_of(target)
    try:
        with open(part, "wb") as file:
            num_rows = copy(shards, file)
            file.flush()
            os.fsync(file.fileno())
        pack(part, target)
        sync_folder(target.parent)
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        part.unlink(missing_ok=True)
    return num_rows


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
