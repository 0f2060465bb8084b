"""What a person or a scheduler sees of a run: progress, notes, events, the summary."""

import json
import logging
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import IO, Any, Self

import typer

from nllb_cli.commands.words import progress_line, summary
from nllb_cli.errors import InputError, NllbError
from nllb_cli.progress import Progress
from nllb_cli.stream import RunStats

PLAIN_S = 30.0
RATE_S = 20.0
STALL_S = 3.0
MOMENT_S = 0.5
LOG_S = 10.0
MAX_BAD_ROWS_SHOWN = 10


def _is_terminal() -> bool:
    """Whether somebody looks at stderr, which may be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


class _Ear(logging.Handler):
    """Hears what the engine's threads have to say; it is told between rows."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: deque[str] = deque()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.texts.append(record.getMessage())


class Reporter:
    """Tells stderr, and a file of events if one is wanted, how a run goes."""

    def __init__(self, is_quiet: bool, log_file: str | None, shows_bar: bool) -> None:
        self._is_quiet = is_quiet
        self._live: Any = None
        self._shows_bar = shows_bar and not is_quiet and _is_terminal()
        self._log: IO[bytes] | None = None
        if log_file is not None:
            try:
                self._log = open(log_file, "ab", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise InputError(f"{log_file}: cannot be written ({error.strerror})") from None
        self._moments: deque[tuple[float, int, int, int]] = deque()  # time, rows, tokens
        self._last_line = self._last_event = monotonic()
        self._ear = _Ear()
        self._num_bad = 0

    def __enter__(self) -> Self:
        logging.getLogger("nllb").addHandler(self._ear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tell_heard()
        self._stop_bar()
        logging.getLogger("nllb").removeHandler(self._ear)
        if self._log is not None:
            if error is not None and not isinstance(error, typer.Exit):
                code = {"code": int(error.exit_code)} if isinstance(error, NllbError) else {}
                text = " ".join(str(error).split()) or type(error).__name__
                self.event("end", **code, error=text)
            self._close_log()

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if self._is_quiet:
            return
        if self._live is not None:
            self._live.console.print(f"nllb: {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            with suppress(OSError):  # nobody can be told, and the rows matter more
                typer.echo(f"nllb: {text}", err=True)

    def event(self, name: str, **values: Any) -> None:
        """Write an event into the log."""
        if self._log is None:
            return
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        content = {"time": moment, "event": name, **values}
        line = json.dumps(content, ensure_ascii=False) + "\n"
        try:
            self._log.write(line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            name = self._log.name
            self._close_log()
            raise InputError(f"{name}: cannot be written ({error.strerror})") from None

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def tick(self, progress: Progress, stats: RunStats) -> None:
        """Show where the run is, as often as it is worth it."""
        now = monotonic()
        self._tell_heard()
        self._note_bad_rows(stats)
        while self._moments and now - self._moments[0][0] > RATE_S:
            self._moments.popleft()
        if not self._moments or now - self._moments[-1][0] > MOMENT_S:
            self._moments.append((now, stats.rows, stats.source_tokens, stats.target_tokens))
        if self._log is not None and now - self._last_event > LOG_S:
            self._last_event = now
            self.event("progress", **self._numbers(progress, stats))
        if self._is_quiet:
            return
        if self._shows_bar:
            self._draw(self._numbers(progress, stats))
        elif now - self._last_line > PLAIN_S:
            self._last_line = now
            self.say(progress_line(self._numbers(progress, stats)))

    def end(self, progress: Progress, stats: RunStats, code: int) -> None:
        """Say what came out."""
        self._tell_heard()
        self._note_bad_rows(stats)
        self._stop_bar()
        self._moments.clear()
        self._moments.append((stats.started, 0, 0, 0))
        marks = {"marks": stats.marks, "before": dict(progress.before)}
        self.event("end", code=int(code), **self._numbers(progress, stats), **marks)
        for line in summary(progress, stats):
            self.say(line)

    def _tell_heard(self) -> None:
        while self._ear.texts:
            text = self._ear.texts.popleft()
            self.event("warning", text=text)
            self.say(text)

    def _note_bad_rows(self, stats: RunStats) -> None:
        while stats.bad_rows:
            where, error = stats.bad_rows.popleft()
            self.event("bad row", place=where, error=error)
            self._num_bad += 1
            if self._num_bad <= MAX_BAD_ROWS_SHOWN:
                self.say(f"{where}: {error}")
            if self._num_bad == MAX_BAD_ROWS_SHOWN:
                self.say("further bad rows are counted, not shown")

    def _numbers(self, progress: Progress, stats: RunStats) -> Mapping[str, Any]:
        """What is known now; rates are those of the last `RATE_S`."""
        now, rows, source, target = self._moments[0]
        if len(self._moments) < 2:
            now, rows, source, target = stats.started, 0, 0, 0
        span = max(monotonic() - now, 1e-3)
        # rows come out in order but are translated by length: tokens tell how much is left
        left_s, total = None, progress.total
        expected = None if total is None else stats.expected_tokens(total - progress.resumed)
        rate = (stats.source_tokens - source) / span
        if expected is not None and rate > 0 and not self._is_held_up(stats, rows):
            left_s = round(max(expected - stats.source_tokens, 0) / rate, 1)
        return {
            "rows": progress.done,
            "total": total,
            "is_estimate": progress.is_estimate,
            "rows_per_s": round((stats.rows - rows) / span, 1),
            "tokens_per_s": round((stats.target_tokens - target) / span, 1),
            "left_s": left_s,
            "bad_rows": stats.marks["failed"] + progress.before["failed"],
            "elapsed_s": round(stats.elapsed_s, 1),
        }

    def _is_held_up(self, stats: RunStats, rows: int) -> bool:
        """Whether a row of which no rate tells is all there is to wait for.

        It stands before the others: none was written since there were so many `rows`, and nothing
        has been translated lately either. So it is at the start, when the longest come first.
        """
        now = monotonic()
        tokens = [source for moment, _, source, _ in self._moments if now - moment > STALL_S]
        is_idle = bool(tokens) and tokens[-1] == stats.source_tokens
        return stats.rows == 0 or (stats.rows == rows and is_idle)

    def _draw(self, numbers: Mapping[str, Any]) -> None:
        from nllb_cli.commands.bar import Bar, open_live

        if self._live is None:
            self._live = open_live()
            self._live.start()
        self._live.update(Bar(numbers))

    def _stop_bar(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
