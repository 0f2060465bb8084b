"""What a run tells: lines on stderr, events in a file, nothing when quiet."""

import json
import logging

import pytest

from nllb_cli.commands import reporter as reporter_module
from nllb_cli.commands.reporter import Reporter
from nllb_cli.errors import InputError
from nllb_cli.progress import Progress
from nllb_cli.stream import RunStats


def test_events_are_lines_of_json_with_a_time(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    with Reporter(False, str(log), True) as reporter:
        reporter.event("start", rows=3, text="é")
        reporter.say("a line")
    assert capsys.readouterr().err == "nllb: a line\n"
    (event,) = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    assert (event["event"], event["rows"], event["text"]) == ("start", 3, "é")
    assert event["time"].endswith("+00:00")


def test_an_error_is_the_last_event(tmp_path):
    log = tmp_path / "log.jsonl"
    with pytest.raises(InputError), Reporter(True, str(log), True):
        raise InputError("in.txt:3: broken")
    event = json.loads(log.read_text().splitlines()[-1])
    assert (event["event"], event["code"], event["error"]) == ("end", 3, "in.txt:3: broken")


def test_quiet_says_nothing_but_logs_what_the_engine_says(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    with Reporter(True, str(log), True) as reporter:
        logging.getLogger("nllb").warning("out of memory: half at a time now")
        reporter.say("not shown")
    assert capsys.readouterr().err == ""
    assert json.loads(log.read_text())["text"] == "out of memory: half at a time now"


def test_no_time_is_told_behind_a_row_of_which_no_rate_tells(tmp_path, monkeypatch):
    now, log, told = [0.0], tmp_path / "log.jsonl", []
    monkeypatch.setattr(reporter_module, "monotonic", lambda: now[0])
    monkeypatch.setattr(reporter_module, "LOG_S", 0.0)
    progress, stats = Progress(), RunStats(started=0.0, rows_in=100, tokens_in=1000)
    progress.expect(None, 100)
    with Reporter(True, str(log), False) as reporter:
        for second in range(1, 40):
            now[0] = float(second)
            stats.source_tokens = min(50 * second, 900)  # done with all but the first row's at 18 s
            stats.rows = 0 if second < 5 else 10
            reporter.tick(progress, stats)
    for line in log.read_text().splitlines():
        told.append(json.loads(line)["left_s"])
    assert told[:4] == [None] * 4
    assert told[4] == 15.0
    assert all(left is not None for left in told[4:20])
    assert told[25:] == [None] * len(told[25:])


def test_a_log_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"absent.*cannot be written"):
        Reporter(False, str(tmp_path / "absent" / "log"), True)
