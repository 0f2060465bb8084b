"""What the names of shards say: which a glob means, and that one is missing or not in its place."""

import glob
import os
import re
from collections.abc import Sequence

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.lines import STATUS_SUFFIX
from nllb_cli.io.targets import UNFINISHED

_DIGITS = re.compile(r"(\d+)")
_OF = re.compile(r"[-_.]?of[-_.]?", re.IGNORECASE)


def expand(names: Sequence[str]) -> list[str]:
    """Return shards by name, for a glob that no shell has expanded those that it matches.

    They stand in the order of their numbers, 2 before 10, and without their status files.

    Raises:
        InputError: nothing matches.
    """
    shards: list[str] = []
    for name in names:
        if os.path.lexists(name) or not any(letter in name for letter in "*?["):
            shards.append(name)
            continue
        found = set(glob.glob(name, recursive=True))
        found -= {path + STATUS_SUFFIX for path in found}
        if not found:
            raise InputError(f"{name}: no file matches")
        shards += sorted(found, key=_by_number)
    return shards


def _by_number(name: str) -> list[tuple[int, str]]:
    pieces = _DIGITS.split(name)
    return [(int(piece) if place % 2 else 0, piece) for place, piece in enumerate(pieces)]


def refuse_unfinished(shards: Sequence[str]) -> None:
    """Refuse what a run has left that did not end: it lacks rows.

    Raises:
        UsageError: names the way to the complete shard.
    """
    for name in shards:
        found = UNFINISHED.search(name)
        if found:
            raise UsageError(
                f"{name}: unfinished; its own command with --resume makes {name[: found.start()]} "
                "of it, which can be merged"
            )


def check_names(shards: Sequence[str]) -> None:
    """Refuse shards whose names are numbered, but not from 0 or 1 on, in order, without a gap.

    Names that differ in more than one number say nothing, nor do years and dates: numbers that
    begin beyond how many names there are. Of `out-3-of-16.txt` a missing last one is known, too.

    Raises:
        UsageError: a shard is named twice, is missing or stands in another's place.
    """
    for index, name in enumerate(shards):
        if name in shards[:index]:
            raise UsageError(f"{name}: named twice; name it once, or --as-given joins it twice")
    names = [_DIGITS.split(name) for name in shards]
    column = _numbered(names)
    if column is not None:
        _check_numbers(shards, names, column)


def _check_numbers(shards: Sequence[str], names: Sequence[list[str]], column: int) -> None:
    numbers = [int(name[column]) for name in names]
    first, count = min(*numbers, 1), _count(names[0], column)
    if count is None and min(numbers) > len(numbers):
        return
    for place, (shard, number) in enumerate(zip(shards, numbers, strict=True)):
        wanted = _named(names[0], column, first + place)
        if number in numbers[:place] or (count is not None and place >= count):
            raise UsageError(
                f"{shard}: one too many by its number; leave it out, or --as-given joins it, too"
            )
        if first + place not in numbers:
            raise _missing(wanted)
        if number != first + place:
            raise UsageError(
                f"{shard}: stands where {wanted} belongs; name the shards in the order of their "
                "numbers, or --as-given joins them as they stand"
            )
    if count is not None and len(shards) < count:
        raise _missing(_named(names[0], column, first + len(shards)))


def _missing(name: str) -> UsageError:
    return UsageError(f"{name}: this shard is missing; name it, or --as-given joins the others")


def _numbered(names: Sequence[list[str]]) -> int | None:
    """Return which piece of the names is the shards' number; pieces at odd places are digits."""
    if len({len(name) for name in names}) > 1:
        return None
    differ = [n for n, pieces in enumerate(zip(*names, strict=True)) if len(set(pieces)) > 1]
    if not differ:  # one shard alone, which may say of how many it is
        differ = [n for n in range(1, len(names[0]), 2) if _count(names[0], n) is not None]
    return differ[0] if len(differ) == 1 and differ[0] % 2 else None


def _count(name: list[str], column: int) -> int | None:
    """Return N of `I-of-N`, if the number is followed so."""
    is_told = column + 2 < len(name) and _OF.fullmatch(name[column + 1])
    return int(name[column + 2]) if is_told else None


def _named(name: list[str], column: int, number: int) -> str:
    """Return the name that the shard of a number would have."""
    width = len(name[column]) if name[column].startswith("0") else 0
    return "".join([*name[:column], f"{number:0{width}}", *name[column + 1 :]])
