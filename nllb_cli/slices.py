"""Which rows of each input are translated: what --skip, --limit and --shard leave."""

from dataclasses import dataclass

from nllb_cli.errors import UsageError
from nllb_cli.io.formats import Source


@dataclass(frozen=True, slots=True)
class Slice:
    """Which rows of each input are translated."""

    skip: int = 0
    limit: int | None = None
    shard: tuple[int, int] | None = None
    """Number, from 1, and count."""

    def bounds(self, source: Source) -> tuple[int, int | None]:
        """First row and the row after the last; None is the end of the input."""
        stop = None if self.limit is None else self.skip + self.limit
        if self.shard is None and source.num_rows is None:
            return self.skip, stop
        num_rows = source.count_rows()
        stop = num_rows if stop is None else min(stop, num_rows)
        span = max(stop - self.skip, 0)
        number, count = self.shard or (1, 1)
        return self.skip + span * (number - 1) // count, self.skip + span * number // count


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """Read `3/16`: the third of sixteen slices."""
    if text is None:
        return None
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise UsageError(f"--shard {text}: write I/N with I from 1 to N, such as 3/16")
