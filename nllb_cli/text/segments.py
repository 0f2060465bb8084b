"""Cut records into segments for the model; put the finished segments back into rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nllb_cli.errors import UsageError
from nllb_cli.languages import resolve
from nllb_cli.options import default_target_limit
from nllb_cli.records import Hypothesis, Record, Segment, Translation

TooLong = Literal["error", "cut"]
TOO_LONG: tuple[TooLong, ...] = ("error", "cut")
MARKS = ("blank", "repeated", "ok", "limit", "cut", "failed")
"""The statuses of a row, from best to worst; a row with several texts has its worst one's.

`limit`: the translation reached its token limit. `cut`: the source was cut at its limit.
"""
Part = tuple[tuple[str, ...], tuple[float, ...]]
"""A text's translation into each target, and their scores."""
NUM_SPECIALS = 2
"""Tokens of a source that are not pieces: its language and `</s>`."""
_BLANK, _REPEATED, OK, _LIMIT, _CUT, _FAILED = range(len(MARKS))


class Codec(Protocol):
    """Text to model ids and back."""

    @property
    def languages(self) -> Mapping[str, int]:
        """Language code to id."""

    def encode(self, texts: Sequence[str], source_lang: str) -> list[list[int]]:
        """Encoder input of each text, with language token and `</s>`."""

    def cut(self, source: Sequence[int], max_tokens: int) -> list[int]:
        """An encoder input without its last pieces, so that it has `max_tokens` tokens."""

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each target sequence."""


@dataclass(frozen=True, slots=True)
class SplitRules:
    """What to do with a source that is too long, and how long a translation may be."""

    max_source_tokens: int = 1022
    """Without language token and `</s>`."""
    max_target_tokens: int | None = None
    """None: each row's own (`default_target_limit`)."""
    too_long: TooLong = "error"


@dataclass(slots=True, eq=False)
class OpenRow:
    """A record on its way: what is finished of it, and how many segments are not."""

    record: Record
    num_chars: int = 0
    num_waiting: int = 0
    mark: int = _BLANK
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

    def fail(self, error: str, ends_run: bool = True) -> None:
        """Give the row up: its translations stay empty and it says why."""
        self.error = self.error or error
        self.ends_run = ends_run
        self.mark = _FAILED
        self.segments = ()
        self.num_waiting = 0


def check_too_long(value: str) -> TooLong:
    """Return a choice of --too-long, or refuse it."""
    for known in TOO_LONG:
        if value == known:
            return known
    raise UsageError(f"--too-long {value}: choose error or cut")


def place(record: Record) -> str:
    """Where a record stands, as a person would say it."""
    if record.input is not None:
        return record.input.place(record.index)
    return f"row {record.index + 1}"


class Splitter:
    """Records in, open rows out; the same rules for all of them."""

    def __init__(self, codec: Codec, rules: SplitRules) -> None:
        self._codec = codec
        self._rules = rules
        self._target_ids: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._languages: dict[str, str] = {}
        self._max_source_tokens = rules.max_source_tokens + NUM_SPECIALS
        self._limits = [
            rules.max_target_tokens or default_target_limit(max(num_tokens - NUM_SPECIALS, 0))
            for num_tokens in range(self._max_source_tokens + 1)
        ]

    def split(self, records: Iterable[Record]) -> list[OpenRow]:
        """Cut a chunk of records; their texts are tokenised in one call a language."""
        rows = []
        pending: dict[str, tuple[list[str], list[OpenRow], list[int]]] = {}
        last_lang: str | None = None
        for record in records:
            row = OpenRow(record)
            rows.append(row)
            if record.error is not None:
                row.fail(record.error)
                continue
            text_index = 0
            for text in record.texts:
                if text and not text.isspace():
                    row.num_chars += len(text)
                    if record.source_lang != last_lang:
                        last_lang = record.source_lang
                        texts, owners, indices = pending.setdefault(last_lang, ([], [], []))
                    texts.append(text)
                    owners.append(row)
                    indices.append(text_index)
                text_index += 1  # noqa: SIM113 (enumerate costs a tuple a text)
        for source_lang, (texts, owners, indices) in pending.items():
            try:
                encoded = self._codec.encode(texts, self._code(source_lang))
            except UsageError as error:
                for row in owners:
                    row.fail(str(error))
                continue
            for row, text_index, tokens in zip(owners, indices, encoded, strict=True):
                if row.error is None and len(tokens) > NUM_SPECIALS:
                    self._add(row, text_index, tokens)
        return rows

    def _add(self, row: OpenRow, text_index: int, tokens: list[int]) -> None:
        record = row.record
        is_cut = len(tokens) > self._max_source_tokens
        if is_cut:
            if self._rules.too_long == "error":
                row.fail(_too_long(len(tokens) - NUM_SPECIALS, self._rules.max_source_tokens))
                return
            tokens = self._codec.cut(tokens, self._max_source_tokens)
        target_ids = self._target_ids.get(record.target_langs)
        if target_ids is None:
            try:
                codes = [self._code(name) for name in record.target_langs]
            except UsageError as error:
                row.fail(str(error))
                return
            target_ids = tuple([self._codec.languages[code] for code in codes])
            self._target_ids[record.target_langs] = target_ids
        limit = self._limits[len(tokens)]
        segment = Segment(
            record, text_index, 0, 1, tokens, target_ids, limit, is_cut, False, None, row
        )  # by position, which takes half the time
        row.segments = (*row.segments, segment) if row.segments else (segment,)
        row.num_waiting += 1

    def _code(self, name: str) -> str:
        """The model's code for a language as a row names it."""
        if name not in self._languages:
            self._languages[name] = resolve(name, self._codec.languages).code
        return self._languages[name]


def _too_long(num_tokens: int, max_tokens: int) -> str:
    return (
        f"the source has {num_tokens:,} tokens and the limit is {max_tokens:,}; "
        "--too-long cut translates its beginning, --on-error keep leaves it empty"
    )


def deliver(results: list[tuple[Segment, tuple[Hypothesis, ...]]], codec: Codec) -> None:
    """Write finished segments, and their twins, into their rows; decode in one call."""
    decoded = codec.decode([hyp.tokens for _, hyps in results for hyp in hyps])
    position = 0
    for segment, hyps in results:
        mark = _CUT if segment.is_cut else OK
        for hyp in hyps:
            if hyp.finish == "length":
                mark = max(mark, _LIMIT)
            elif hyp.finish == "invalid":
                mark = _FAILED
        end = position + len(hyps)
        part: Part = (tuple(decoded[position:end]), tuple([hyp.score for hyp in hyps]))
        position = end
        _fill(segment, part, mark)
        for twin in segment.twins or ():
            _fill(twin, part, mark)


def _fill(segment: Segment, part: Part, mark: int) -> None:
    row: OpenRow = segment.row
    if row.error is not None:
        return
    if mark == _FAILED:
        # nobody can mend such a row, and those around it are as good as ever
        row.fail("the model's scores were not finite; --dtype float32 may help", ends_run=False)
        return
    if mark == OK and segment.is_repeated:
        mark = _REPEATED
    if mark > row.mark:
        row.mark = mark
    row.num_waiting -= 1
    if segment.text_index == 0:
        row.finished = part
    else:
        row.others = row.others or {}
        row.others[segment.text_index] = part


def join(row: OpenRow) -> Translation:
    """The output row of a record whose segments are all finished."""
    record, part = row.record, row.finished
    if len(record.texts) == 1 and part is not None and row.error is None:
        texts, scores = part
        if len(texts) == 1:
            return Translation(record, (texts,), (scores,), MARKS[row.mark])
    return _joined(row)


def _joined(row: OpenRow) -> Translation:
    """Blank and null texts stay as they are; of a failed row the others become empty."""
    record, num_targets = row.record, len(row.record.target_langs)
    columns: list[Sequence[str | None]] = []
    scores: list[Sequence[float | None]] = []
    for index, text in enumerate(record.texts):
        part = row.finished if index == 0 else (row.others or {}).get(index)
        if row.error is not None:
            part, text = None, None if text is None else ""
        columns.append(part[0] if part else [text] * num_targets)
        scores.append(part[1] if part else [None] * num_targets)
    return Translation(
        record, tuple(zip(*columns, strict=True)), tuple(zip(*scores, strict=True)),
        MARKS[row.mark], row.error,
    )  # fmt: skip
