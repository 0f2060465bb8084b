"""The progress line fits any terminal and leaves out the least important first."""

import io

import pytest
from rich.console import Console

from nllb_cli.commands.bar import Bar
from tests.commands.test_words import numbers


def shown(width, **changes):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(Bar(numbers(**changes)))
    return console.file.getvalue().rstrip("\n")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("total", [None, 340])
def test_it_is_one_line_that_fits(width, total):
    line = shown(width, total=total, bad_rows=3, rows=12)
    assert "\n" not in line
    assert len(line) <= width
    assert "12" in line


def test_what_does_not_fit_goes_rates_first():
    assert "tokens/s" in shown(120)
    narrow = shown(30)
    assert "tokens/s" not in narrow
    assert "3% 12/340 rows" in narrow


def test_a_total_that_is_estimated_says_so():
    assert "/~340 rows" in shown(120, is_estimate=True)
