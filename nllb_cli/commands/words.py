"""Numbers and times as a person reads them."""

from collections.abc import Mapping
from typing import Any

from nllb_cli.progress import Progress
from nllb_cli.stream import RunStats


def count(number: float) -> str:
    """12,345, or 3.4 below ten."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def duration(seconds: float) -> str:
    """0.8 s, 45 s, 12 min, 3 h 5 min, 2 d 3 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def plural(number: int, noun: str) -> str:
    """1 row, 2 rows."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def rows_of_total(numbers: Mapping[str, Any]) -> str:
    """12 of 34 rows; `about` where the total is an estimate."""
    if numbers["total"] is None:
        return plural(numbers["rows"], "row")
    about = "about " if numbers["is_estimate"] else ""
    return f"{count(numbers['rows'])} of {about}{plural(numbers['total'], 'row')}"


def progress_line(numbers: Mapping[str, Any]) -> str:
    """A line for a log."""
    parts = [
        rows_of_total(numbers),
        f"{count(numbers['rows_per_s'])} rows/s",
        f"{count(numbers['tokens_per_s'])} tokens/s",
    ]
    if numbers["left_s"] is not None:
        parts.append(f"{duration(numbers['left_s'])} left")
    if numbers["bad_rows"]:
        parts.append(plural(numbers["bad_rows"], "bad row"))
    return ", ".join(parts)


def summary(progress: Progress, stats: RunStats) -> list[str]:
    """What came out: one line if all went well, else a table of statuses with their places."""
    seconds = max(stats.elapsed_s, 1e-3)
    found = {mark: count(number) for mark, number in stats.marks.items() if number}
    told = [f"{number} {mark}" for mark, number in found.items() if mark != "ok"]
    marks = f" ({', '.join(told)})" if told and not stats.places else ""
    resumed = f", {count(progress.resumed)} more from before" if progress.resumed else ""
    old = progress.before
    before = [f"{count(old[mark])} {mark}" for mark in stats.marks if old[mark] and mark != "ok"]
    resumed += f" ({', '.join(before)})" if before else ""
    line = f"{plural(stats.rows, 'row')}{marks}{resumed}"
    if stats.rows:  # no rows have no rate
        line += (
            f" in {duration(seconds)}: {count(stats.rows / seconds)} rows/s,"
            f" {count(stats.target_tokens / seconds)} tokens/s"
        )
    if not stats.places:
        return [line]
    names, numbers = max(map(len, found)), max(map(len, found.values()))
    table = [(mark, f"  {mark:<{names}}  {number:>{numbers}}") for mark, number in found.items()]
    return [line, *(f"{cells}  {_places(mark, stats)}".rstrip() for mark, cells in table)]


def _places(mark: str, stats: RunStats) -> str:
    places = stats.places.get(mark, [])
    more = stats.marks[mark] - len(places) if places else 0
    return ", ".join(places) + (f" and {count(more)} more" if more else "")
