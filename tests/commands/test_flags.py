"""Every option is named once, explains itself and is used."""

import typing

from nllb_cli.cli import app
from nllb_cli.commands import flags

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
