"""Numbers and times as a person reads them."""

import pytest

from nllb_cli.commands import words


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (3.42, "3.4"), (9.0, "9"), (10.4, "10"), (1234567, "1,234,567")]
)
def test_counts(number, text):
    assert words.count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.81, "0.8 s"),
        (45, "45 s"),
        (720, "12 min"),
        (11100, "3 h 5 min"),
        (183600, "2 d 3 h"),
    ],
)
def test_durations(seconds, text):
    assert words.duration(seconds) == text


def numbers(**changes):
    known = {
        "rows": 12,
        "total": 340,
        "is_estimate": False,
        "rows_per_s": 3.25,
        "tokens_per_s": 120.0,
        "left_s": 100.9,
        "bad_rows": 0,
    }
    return known | changes


def test_a_progress_line_tells_what_is_known():
    line = words.progress_line(numbers())
    assert line == "12 of 340 rows, 3.2 rows/s, 120 tokens/s, 2 min left"
    line = words.progress_line(numbers(total=None, left_s=None, rows=1, bad_rows=2))
    assert line == "1 row, 3.2 rows/s, 120 tokens/s, 2 bad rows"
    assert "of about 340 rows" in words.progress_line(numbers(is_estimate=True))
