"""Numbers and times as a person reads them."""

from time import monotonic

import pytest

from nllb_cli.commands import words
from nllb_cli.progress import Progress
from nllb_cli.stream import RunStats


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


def test_the_summary_is_a_line_or_a_table_of_what_went_wrong():
    stats = RunStats(rows=1200, target_tokens=2400, started=monotonic() - 100)
    stats.marks |= {"ok": 1190, "blank": 10}
    progress = Progress(resumed=50)
    (line,) = words.summary(progress, stats)
    assert line == "1,200 rows (10 blank), 50 more from before in 2 min: 12 rows/s, 24 tokens/s"
    stats.marks |= {"ok": 1177, "failed": 12, "cut": 1}
    stats.places = {"cut": ["a.txt:7"], "failed": [f"a.txt:{n}" for n in range(10)]}
    assert words.summary(progress, stats) == [
        "1,200 rows, 50 more from before in 2 min: 12 rows/s, 24 tokens/s",
        "  blank      10",
        "  ok      1,177",
        "  cut         1  a.txt:7",
        f"  failed     12  {', '.join(stats.places['failed'])} and 2 more",
    ]


def test_no_rows_have_no_rate():
    stats = RunStats(started=monotonic() - 5)
    assert words.summary(Progress(), stats) == ["0 rows"]
    progress = Progress(resumed=50)
    assert words.summary(progress, stats) == ["0 rows, 50 more from before"]
    progress.before.update({"ok": 40, "failed": 3, "blank": 7})
    assert words.summary(progress, stats) == ["0 rows, 50 more from before (7 blank, 3 failed)"]
