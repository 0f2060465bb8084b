"""Group segments by length, a window at a time, into batches under a token budget.

What is held: at most `max_open_rows` rows stand between the reader's queue and the writer
(`Limits.max_open_rows` = four windows), however slow one of them is. A new window is begun
only when a whole one fits; so a row that does not finish stops the reading, not the memory.
A window also closes at `window_chars` characters, so that long rows count for what they weigh.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nllb_cli.options import BLOCK_ROWS
from nllb_cli.records import Batch, Input, Record, Segment
from nllb_cli.text.open_rows import OpenRow

_Seen = dict[str | None, Segment]
"""What was read of one source language into the same targets, by its text."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read ahead and how much goes through the encoder together."""

    window_rows: int = 4096
    """Rows that are read ahead and sorted together."""
    first_window_rows: int = 4096
    """The first window has so many; then each has as many as all before it, up to the whole."""
    window_chars: int = 4_000_000
    max_batch_tokens: int = 4096
    """Padded source tokens of a batch, times its targets."""
    max_batch_rows: int = 256

    @property
    def max_open_rows(self) -> int:
        """At most this many rows are between reading and writing."""
        return 4 * self.window_rows

    @property
    def max_open_chars(self) -> int:
        """At most this many characters are between reading and writing, one window over."""
        return 4 * self.window_chars


class Window:
    """Segments that will be sorted together; repeated ones become twins of the first.

    Whether a segment counts as repeated depends on its block of the input alone, not on where
    windows happen to end, so that a resumed run marks the same rows.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.num_rows = 0
        self.num_chars = 0
        self._num_emptied = 0
        self._max_rows = min(limits.first_window_rows, limits.window_rows)
        self._number = 0
        self._segments: list[Segment] = []
        self._seen: dict[tuple[str, tuple[int, ...]], _Seen] = {}
        self._block = -1
        self._input: Input | None = None

    @property
    def is_full(self) -> bool:
        """True once it should be emptied before the next row."""
        return self.room <= 0 or self.num_chars >= self.limits.window_chars

    @property
    def room(self) -> int:
        """Rows that it may still take."""
        return self._max_rows - self.num_rows

    def add(self, rows: list[OpenRow]) -> list[OpenRow]:
        """Take the segments of some rows in; return the rows, those already written left out.

        The rows forget their segments, so that nothing is a cycle.
        """
        number, segments = self._number, self._segments
        num_done = num_chars = 0
        source_lang: str | None = None
        target_ids: tuple[int, ...] = ()
        for row in rows:
            record = row.record
            if record.index // BLOCK_ROWS != self._block or record.input is not self._input:
                self._enter_block(record)
                source_lang = None
            for segment in row.segments:
                if record.source_lang is not source_lang or segment.target_ids is not target_ids:
                    source_lang, target_ids = record.source_lang, segment.target_ids
                    seen = self._seen.setdefault((source_lang, target_ids), {})
                text = record.texts[segment.text_index]
                if segment.num_parts > 1:
                    text = _part(segment)
                first = seen.setdefault(text, segment)
                if record.is_done:
                    continue
                if first is not segment:
                    segment.is_repeated = True
                    if first.row.window == number:
                        first.twins = first.twins or []
                        first.twins.append(segment)
                        continue
                    seen[text] = segment
                segments.append(segment)
            if record.is_done:
                num_done += 1
                continue
            num_chars += row.num_chars
            row.window = number
            row.segments = ()
        self.num_chars += num_chars
        self.num_rows += len(rows) - num_done
        return [row for row in rows if not row.record.is_done] if num_done else rows

    def empty(self) -> list[Batch]:
        """Hand the window's segments over, longest first."""
        batches = bucketed(self._segments, self.limits)
        self._segments = []
        self._num_emptied += self.num_rows
        self._max_rows = min(self.limits.window_rows, max(self._max_rows, self._num_emptied))
        self.num_rows = self.num_chars = 0
        self._number += 1
        return batches

    def _enter_block(self, record: Record) -> None:
        self._block, self._input = record.index // BLOCK_ROWS, record.input
        self._seen = {}


def _part(segment: Segment) -> str:
    """The text of a segment that is a part of one."""
    row: OpenRow = segment.row
    assert row.parts is not None
    return row.parts[segment.text_index].texts[segment.part]


def bucketed(segments: Iterable[Segment], limits: Limits) -> list[Batch]:
    """Batches of similar length, longest first, each under the token budget."""
    ordered = sorted(segments, key=_num_tokens, reverse=True)
    batches = []
    start = 0
    while start < len(ordered):
        longest = ordered[start]
        cost = len(longest.source_tokens) * len(longest.target_ids)
        num_rows = max(1, min(limits.max_batch_rows, limits.max_batch_tokens // max(cost, 1)))
        batches.append(Batch(ordered[start : start + num_rows]))
        start += num_rows
    return batches


def _num_tokens(segment: Segment) -> int:
    return len(segment.source_tokens)
