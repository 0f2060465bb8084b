"""What `--help` shows, at the width of a small terminal and of a large one."""

import re

import pytest

from nllb_cli import cli
from tests.readme import commands

PAGES = [[], *([name] for name in commands())]


def shown(words, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.run([*words, "--help"]) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)  # colours, where they are forced


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", PAGES, ids=str)
def test_flags_have_no_type_defaults_one_bracket_and_no_name_is_cut(
    words, width, capsys, monkeypatch
):
    text = shown(words, width, capsys, monkeypatch)
    assert "--help" in text
    for unwanted in ("bool", "BOOLEAN", "default: (", "{INPUT", "...}", "…"):
        assert unwanted not in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("command", "usage"),
    [("translate", "INPUT..."), ("merge", "SHARD..."), ("langs", "[WORD]"), ("bench", "")],
)
def test_the_usage_names_the_arguments(command, usage, capsys, monkeypatch):
    text = shown([command], 80, capsys, monkeypatch)
    (line,) = re.findall(r"Usage: (.*)", text)
    assert line.strip() == f"nllb {command} [OPTIONS] {usage}".strip()


def test_merge_whose_inputs_are_files_says_nothing_of_stdin(capsys, monkeypatch):
    assert "stdin" not in shown(["merge"], 80, capsys, monkeypatch)
