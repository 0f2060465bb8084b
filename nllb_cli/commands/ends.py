"""The first signal lets a run end in order, the second ends it at once."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from nllb_cli.errors import ExitCode

GRACE_S = 5.0
_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Ends:
    """While entered, SIGINT and SIGTERM call `request_stop` and set `code`."""

    def __init__(self) -> None:
        self.code: ExitCode | None = None
        """How the process should end, once a signal has come."""
        self._request_stop: Callable[[float], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def attach(self, request_stop: Callable[[float], None]) -> None:
        """Say what is to be stopped; until then a signal ends the process at once."""
        self._request_stop = request_stop

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _CODES:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        code = _CODES[signal.Signals(number)]
        if self.code is not None or self._request_stop is None:
            end_now(code)
        self.code = code
        self._request_stop(GRACE_S)


def end_now(code: int) -> NoReturn:
    """End this process and those of its engines, also such as stand still."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.kill()
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(2, b"\r\n\x1b[?25h")  # the bar's line is left, and the cursor seen again
    os._exit(code)


def resume_command(command: list[str]) -> str:
    """The command line that continues a run."""
    words = [word for word in command if word not in ("--overwrite", "--resume")]
    return shlex.join([*words, "--resume"])
