"""What flows through the program: records, segments, batches, hypotheses, translations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Finish = Literal["eos", "length", "empty", "invalid"]
"""Why a hypothesis ended: `</s>`, its token limit, nothing to translate, NaN or infinity."""


class Input(Protocol):
    """What rows come from."""

    @property
    def format(self) -> str:
        """The format of the rows."""

    def place(self, index: int) -> str:
        """Name a row for a person."""


@dataclass(slots=True, eq=False)
class Record:
    """One input row, and so one output row."""

    index: int
    """Row number in its input, from 0."""
    texts: tuple[str | None, ...]
    """The chosen fields of the row; None is a null, which stays one."""
    source_lang: str
    target_langs: tuple[str, ...]
    origin: Any = None
    """What the format's writer needs to put the row back together; nobody else looks at it."""
    error: str | None = None
    """Why this row cannot be translated (only under --on-error keep)."""
    input: "Input | None" = None
    """Where it stands, set where several inputs become one stream."""
    is_done: bool = False
    """Written by an earlier run: only looked at, so that its repeats are known."""


@dataclass(slots=True, eq=False)
class Segment:
    """What the model translates; a text of a record has one or more parts."""

    record: Record
    text_index: int
    part: int
    num_parts: int
    source_tokens: list[int]
    """[S] encoder input with language token and `</s>`; empty means nothing to translate."""
    target_ids: tuple[int, ...]
    """Language token of each wanted target."""
    max_target_tokens: int
    """Limit on produced tokens, language token and `</s>` included (HF's max_new_tokens)."""
    is_cut: bool = False
    is_repeated: bool = False
    """The same segment stood in an earlier row near this one."""
    twins: list["Segment"] | None = None
    """Repeated segments of the same window that share this one's hypotheses."""
    row: Any = None
    """What `join` needs to put the row back together; nobody else looks at it."""


@dataclass(slots=True, eq=False)
class Batch:
    """Segments that go through the encoder together, longest first."""

    segments: list[Segment]


@dataclass(slots=True)
class Hypothesis:
    """A finished target sequence."""

    tokens: list[int]
    """Target pieces without language token and `</s>`."""
    score: float
    """Sum of log-probabilities / length^alpha, natural logarithm."""
    finish: Finish


@dataclass(slots=True, eq=False)
class Translation:
    """One output row."""

    record: Record
    texts: tuple[tuple[str | None, ...], ...]
    """[target][text]"""
    scores: tuple[tuple[float | None, ...], ...]
    """[target][text]; None where the model was not asked; of a text in parts the worst part's."""
    status: str = "ok"
    """The worst of its texts' (`MARKS` of `text/open_rows.py`); `unknown 3` counts tokens."""
    error: str | None = None

    @property
    def text(self) -> str | None:
        """The first text in the first target language."""
        return self.texts[0][0]

    @property
    def score(self) -> float | None:
        """Its score; None where the model was not asked."""
        return self.scores[0][0]


class BatchSource(Protocol):
    """Where an engine takes batches from."""

    @property
    def is_exhausted(self) -> bool:
        """True once no batch will ever come again."""

    def take(self, wait: bool) -> Batch | None:
        """Return the next batch, or None: none is ready now (`wait` false) or ever again.

        An engine with work in hand must not wait, so that a pause in the input holds nothing back.
        """


class Engine(Protocol):
    """Integers in, integers out, in any order."""

    def translate(self, source: BatchSource) -> Iterator[tuple[Segment, tuple[Hypothesis, ...]]]:
        """Yield each segment once, with its best hypothesis for each of its `target_ids`."""

    def close(self) -> None:
        """Give memory and processes back."""
