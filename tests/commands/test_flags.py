"""Every option is named once, explains itself and is used."""

import ast
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import typer

from nllb_cli import cli
from nllb_cli.cli import app
from nllb_cli.commands import flags
from nllb_cli.io.formats import FORMATS
from nllb_cli.options import DTYPES, ON_ERROR
from nllb_cli.text.emoji import EMOJI
from nllb_cli.text.normalize import NORMALIZE
from nllb_cli.text.segments import TOO_LONG

SOURCES = sorted(Path(cli.__file__).parent.rglob("*.py"))
ALIASES = {name: value for name, value in vars(flags).items() if typing.get_origin(value)}


def test_each_alias_has_help_and_is_used_by_a_command():
    used = set()
    for command in app.registered_commands:
        hints = typing.get_type_hints(command.callback, include_extras=True)
        used |= {name for name, alias in ALIASES.items() if alias in hints.values()}
    for name, alias in ALIASES.items():
        (info,) = alias.__metadata__
        assert info.help, name
        assert info.help.endswith("."), name
    assert used == set(ALIASES)


@pytest.mark.parametrize(
    ("flag", "choices"),
    [
        ("--format", FORMATS),
        ("--on-error", ON_ERROR),
        ("--dtype", DTYPES),
        ("--emoji", EMOJI),
        ("--normalize", NORMALIZE),
        ("--too-long", TOO_LONG),
    ],
)
def test_the_shell_completes_a_choice(flag, choices):
    words = f"nllb translate {flag} "
    environment = os.environ | {
        "_NLLB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": "3",
    }
    command = [sys.executable, "-m", "nllb_cli"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout.split() == list(choices)


@pytest.mark.parametrize(
    ("flag", "value", "wanted"),
    [
        ("--skip", "-1", "0 or more"),
        ("--limit", "-1", "0 or more"),
        ("--limit", "1.5", "0 or more"),
        ("--max-source-tokens", "0", "1 or more"),
        ("--max-target-tokens", "1", "2 or more"),
        ("--max-batch-rows", "0", "1 or more"),
        ("--beam", "four", "a whole number"),
        ("--beam", "0", "1 (greedy) to 32"),
        ("--gpu-memory", "most", "a number"),
        ("--gpu-memory", "2.0", "a share from 0.05 to 1.0"),
        ("--length-penalty", "", "a number"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_the_remedy(flag, value, wanted, capsys):
    assert cli.run(["translate", "-", "--src", "en", "--tgt", "fr", flag, value]) == 2
    assert capsys.readouterr().err == f"nllb: {flag} {value}: choose {wanted}\n"


def test_lines_of_bench_are_refused_likewise(capsys):
    assert cli.run(["bench", "--lines", "0"]) == 2
    assert capsys.readouterr().err == "nllb: --lines 0: choose 1 or more\n"


def options_named_in(path):
    """Yield line and name of each option in the strings of a source file, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in re.finditer(r"(?<![\w-])--[a-z][a-z-]*\b", node.value):
                yield node.lineno, found[0]


def test_each_option_that_a_text_names_exists():
    """A remedy that names another cannot be followed."""
    group = typer.main.get_command(app)
    parameters = [p for command in (group, *group.commands.values()) for p in command.params]
    known = {"--help"}.union(*(parameter.opts for parameter in parameters))
    named = [(path.name, *found) for path in SOURCES for found in options_named_in(path)]
    assert {"--overwrite", "--on-error", "--src-field"} <= {name for _, _, name in named}
    assert [found for found in named if found[-1] not in known] == []
