"""The terminal: commands, exit codes, and one line for whatever a person can mend."""

import sys
import threading
from contextlib import suppress
from typing import Annotated

import typer

from nllb_cli import __version__
from nllb_cli.commands.bench import bench
from nllb_cli.commands.ends import end_now
from nllb_cli.commands.help import Command, Group
from nllb_cli.commands.langs import langs
from nllb_cli.commands.merge import merge
from nllb_cli.commands.translate import translate
from nllb_cli.errors import ExitCode, NllbError

# click's class for what is wrong in a command line, wherever typer keeps it
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    cls=Group,
    help="Translate a corpus with NLLB-200 or M2M-100: one row in, one row out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 done, but some rows are bad; 2 usage; 3 input; 4 model; "
    "5 device; 130 interrupted; 141 nobody reads the output any more; 143 terminated.",
)
for command in (translate, merge, langs, bench):
    app.command(cls=Command)(command)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"nllb {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Translate a corpus with NLLB-200 or M2M-100: one row in, one row out."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; what a person can mend is one line on stderr."""
    try:
        result = app(arguments, prog_name="nllb", standalone_mode=False)
    except NllbError as error:
        _say(str(error))
        return error.exit_code
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _CommandLineError as error:
        _say(_usage(error))
        return ExitCode.USAGE
    return result if isinstance(result, int) else ExitCode.OK


def main() -> None:
    """Run the command line and end the process."""
    code = run()
    try:
        if sys.stdout is not None:  # it was closed before we came
            sys.stdout.flush()
    except BrokenPipeError:
        end_now(ExitCode.PIPE_CLOSED)
    _flush_stderr()
    if any(thread.name.startswith("nllb-") for thread in threading.enumerate()):
        # one hangs in a read or in the model, which the interpreter's own end would disturb
        end_now(code)
    sys.exit(code)


def _flush_stderr() -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # nobody can be told; the interpreter would try again and exit with 120
        sys.stderr = None


def _say(text: str) -> None:
    with suppress(OSError):  # the exit code says it too
        typer.echo(f"nllb: {text}", err=True)


def _usage(error: BaseException) -> str:
    format_message = getattr(error, "format_message", None)
    text = format_message() if format_message else str(error)
    text = text or "a command is needed"
    if getattr(getattr(error, "param", None), "name", None) == "inputs":
        text = "INPUT is needed: files, or - for stdin"
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nllb"
    return f"{' '.join(text.split())} (`{command} --help` shows the options)"
