"""The first signal lets a run end in order, the second ends it at once."""

import os
import select
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
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
        self.notice = ""
        """What a person should be told of the signal that has come, outside its handler."""
        self._request_stop: Callable[[float], None] | None = None
        self._last_words: Callable[[], str] = str
        self._before: dict[signal.Signals, Any] = {}

    def attach(
        self, request_stop: Callable[[float], None], last_words: Callable[[], str] = str
    ) -> None:
        """Say what is to be stopped; until then a signal ends the process at once.

        `last_words` gives the line with which a second signal ends it.
        """
        self._request_stop, self._last_words = request_stop, last_words

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
            end_now(code, self._last_words())
        self.code = code
        again = "Ctrl-C again" if number == signal.SIGINT else "another signal"
        self.notice = f"finishing what is in flight; {again} stops now"
        self._request_stop(GRACE_S)


def end_now(code: int, last_words: str = "") -> NoReturn:
    """End this process and those of its engines, also such as stand still."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.kill()
    if sys.stderr is not None:
        # of a terminal the bar's line is left, and the cursor seen again
        start = "\r\n\x1b[?25h" if sys.stderr.isatty() else ""
        _write_at_once(f"{start}nllb: {last_words}\n" if last_words else start)
    os._exit(code)


def _write_at_once(text: str) -> None:
    """Write to stderr what a signal handler may: past its buffer, and only if nothing waits."""
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode("utf-8", "backslashreplace"))


def resume_command(command: list[str]) -> str:
    """The command line that continues a run."""
    words = [word for word in command if word not in ("--overwrite", "--resume")]
    return shlex.join([*words, "--resume"])
