"""One line of progress that fits any width of the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nllb_cli.commands.words import count, duration

MIN_BAR_WIDTH = 10
MAX_BAR_WIDTH = 40


class Bar:
    """Bar, rows, rates, time left, bad rows; what does not fit is left out, the bar first."""

    def __init__(self, numbers: Mapping[str, Any]) -> None:
        self.numbers = numbers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers, width = self.numbers, options.max_width - 1
        parts = _parts(numbers)
        while sum(len(part) + 2 for part in parts) - 2 > width and len(parts) > 1:
            parts = parts[:-1]
        text = Text("  ".join(parts), no_wrap=True, overflow="crop")
        bar_width = min(width - len(text) - 2, MAX_BAR_WIDTH)
        if numbers["total"] and bar_width >= MIN_BAR_WIDTH:
            grid = Table.grid(padding=(0, 2, 0, 0))
            bar = ProgressBar(numbers["total"], min(numbers["rows"], numbers["total"]), bar_width)
            grid.add_row(bar, text)
            yield grid
        else:
            yield text


def _parts(numbers: Mapping[str, Any]) -> list[str]:
    """What is shown, the most important first."""
    rows, total = numbers["rows"], numbers["total"]
    if total:
        about = "~" if numbers["is_estimate"] else ""
        parts = [f"{100 * rows // max(total, 1)}% {count(rows)}/{about}{count(total)} rows"]
    else:
        parts = [f"{count(rows)} rows"]
    if numbers["bad_rows"]:
        parts.append(f"{count(numbers['bad_rows'])} bad")
    if numbers["left_s"] is not None:
        parts.append(f"{duration(numbers['left_s'])} left")
    if numbers["tokens_per_s"]:  # else nothing is known yet
        parts.append(f"{count(numbers['rows_per_s'])} rows/s")
        parts.append(f"{count(numbers['tokens_per_s'])} tokens/s")
    return parts


def open_live() -> Live:
    """A line on stderr that redraws itself and vanishes at the end."""
    console = Console(stderr=True)
    return Live(console=console, transient=True, refresh_per_second=5, redirect_stdout=False)
