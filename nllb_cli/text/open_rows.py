"""A row on its way through the program: what of it is finished, and how it went."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nllb_cli.records import Record, Segment

MARKS = (
    *("blank", "copied", "repeated", "ok"),
    *("unknown", "script", "limit", "cut", "failed"),
)
"""The statuses of a row, from best to worst; a row with several texts has its worst one's.

`copied`: nothing but emoji. `unknown`: the vocabulary lacks something of the source. `script`: the
translation is not in its language's script. `limit`: the translation reached its token limit.
`cut`: the source was cut at its limit.
"""
Part = tuple[tuple[str, ...], tuple[float, ...]]
"""A text's translation into each target, and their scores."""
BLANK, COPIED, REPEATED, OK, UNKNOWN, SCRIPT, LIMIT, CUT, FAILED = range(len(MARKS))


@dataclass(slots=True, eq=False)
class Parts:
    """A text with emoji: words, emoji, …, words, and what its words have become."""

    texts: list[str]
    num_waiting: int = 0
    finished: dict[int, Part] = field(default_factory=dict)

    def joined(self, num_targets: int) -> Part:
        """Put the text together again; its score is that of its worst part."""
        texts: list[str] = []
        scores: list[float] = []
        for target in range(num_targets):
            words = [
                self.finished[i][0][target] if i in self.finished else text
                for i, text in enumerate(self.texts)
            ]
            texts.append("".join(words))
            scores.append(min(part[1][target] for part in self.finished.values()))
        return tuple(texts), tuple(scores)


@dataclass(slots=True, eq=False)
class OpenRow:
    """A record on its way: what is finished of it, and how many segments are not."""

    record: Record
    num_chars: int = 0
    num_waiting: int = 0
    mark: int = BLANK
    error: str | None = None
    ends_run: bool = False
    """Under --on-error fail nothing after it is written."""
    window: int = -1
    """Number of the window that its segments are in."""
    segments: Sequence[Segment] = ()
    """What is to be translated, until a window takes it."""
    finished: "Part | None" = None
    """The first text's translations; those of further texts follow in `others`."""
    others: "dict[int, Part] | None" = None
    parts: "dict[int, Parts] | None" = None
    """Of texts that were cut into parts."""
    num_unknown: int = 0
    """Source tokens that stand for what the vocabulary lacks."""

    @property
    def status(self) -> str:
        """The mark, of `unknown` with the number of tokens."""
        return f"unknown {self.num_unknown}" if self.mark == UNKNOWN else MARKS[self.mark]

    def fail(self, error: str, ends_run: bool = True) -> None:
        """Give the row up: its translations stay empty and it says why."""
        self.error = self.error or error
        self.ends_run = ends_run
        self.mark = FAILED
        self.segments = ()
        self.num_waiting = 0


def place(record: Record) -> str:
    """Where a record stands, as a person would say it."""
    if record.input is not None:
        return record.input.place(record.index)
    return f"row {record.index + 1}"
