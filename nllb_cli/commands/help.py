"""What `--help` leaves out of a command: types of flags, braces round arguments."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command with a plain help."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters as `--help` shows them."""
        return _without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage: `INPUT...` where the library has `{INPUT}...`."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]


class Group(TyperGroup):
    """All commands, with a plain help."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters as `--help` shows them."""
        return _without_types(super().get_params(ctx))


def _without_types(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, so that none is to be named; `--help` itself is such a flag."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
