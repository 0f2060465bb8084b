"""The exceptions that a person may see, each with its exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process returns to the shell."""

    OK = 0
    BAD_ROWS = 1  # --on-error keep went on, and some rows could not be translated
    USAGE = 2
    INPUT = 3
    MODEL = 4
    DEVICE = 5
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


class NllbError(Exception):
    """Something that a person can mend; its text is one line with the place and the remedy."""

    exit_code = ExitCode.INPUT


class UsageError(NllbError):
    """An option or a combination of options is wrong."""

    exit_code = ExitCode.USAGE


class InputError(NllbError):
    """An input or an output file is wrong; the text names file and row."""

    exit_code = ExitCode.INPUT


class BadRowError(InputError):
    """A row cannot be translated and ends the run; those before it come out."""

    def __init__(self, text: str, format: str = "") -> None:
        super().__init__(text)
        self.format = format
        """Of the row's input, if it has one."""


class ModelError(NllbError):
    """A checkpoint or a tokeniser cannot be used."""

    exit_code = ExitCode.MODEL


class DeviceError(NllbError):
    """The asked-for device is absent or too small."""

    exit_code = ExitCode.DEVICE
