"""Every option is named once, explains itself and is used."""

import os
import subprocess
import sys
import typing

import pytest

from nllb_cli.cli import app
from nllb_cli.commands import flags
from nllb_cli.io.formats import FORMATS
from nllb_cli.options import DTYPES, ON_ERROR
from nllb_cli.text.emoji import EMOJI
from nllb_cli.text.normalize import NORMALIZE
from nllb_cli.text.segments import TOO_LONG

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
