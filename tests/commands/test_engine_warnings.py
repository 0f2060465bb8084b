"""What the engine has to say in mid-run reaches the person and the log, once, as one line."""

import json
import logging

from nllb_cli.commands.reporter import Reporter
from nllb_cli.progress import Progress
from nllb_cli.stream import RunStats

TEXT = "out of memory: decoding 512 rows at a time now"


def say(is_quiet, log_file, capsys):
    logger = logging.getLogger("nllb")
    before = list(logger.handlers)
    with Reporter(is_quiet, log_file, shows_bar=False) as reporter:
        logger.warning("out of memory: decoding %d rows at a time now", 512)
        logger.info("not worth a line")
        reporter.tick(Progress(), RunStats())
        reporter.tick(Progress(), RunStats())
        told = capsys.readouterr().err
        logger.warning("late")
    assert logger.handlers == before
    return told, capsys.readouterr().err


def test_it_is_a_line_on_stderr(capsys):
    assert say(False, None, capsys) == (f"nllb: {TEXT}\n", "nllb: late\n")


def test_quiet_leaves_it_to_the_log(capsys, tmp_path):
    log = tmp_path / "events.jsonl"
    assert say(True, str(log), capsys) == ("", "")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(event["event"], event["text"]) for event in events] == [
        ("warning", TEXT),
        ("warning", "late"),
    ]
