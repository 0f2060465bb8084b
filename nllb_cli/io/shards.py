"""What the numbers in the names of shards say: one is missing, or not in its place."""

import re
from collections.abc import Sequence

from nllb_cli.errors import UsageError

_DIGITS = re.compile(r"(\d+)")
_OF = re.compile(r"[-_.]?of[-_.]?", re.IGNORECASE)


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
