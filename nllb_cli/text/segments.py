"""Cut records into segments for the model; put the finished segments back into rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nllb_cli.errors import UsageError
from nllb_cli.languages import resolve
from nllb_cli.options import default_target_limit
from nllb_cli.records import Finish, Hypothesis, Record, Segment, Translation
from nllb_cli.text.emoji import EMOJI, Emoji, cut_at_emoji
from nllb_cli.text.normalize import NORMALIZE, Normalize, Normalizer
from nllb_cli.text.open_rows import (
    BLANK,
    COPIED,
    CUT,
    FAILED,
    LIMIT,
    OK,
    REPEATED,
    SCRIPT,
    UNKNOWN,
    OpenRow,
    Part,
    Parts,
)
from nllb_cli.text.scripts import Scripts

TooLong = Literal["error", "cut"]
TOO_LONG: tuple[TooLong, ...] = ("error", "cut")
_MARK_OF_FINISH: dict[Finish, int] = {
    "eos": BLANK,
    "empty": BLANK,
    "length": LIMIT,
    "invalid": FAILED,
}
NUM_SPECIALS = 2
"""Tokens of a source that are not pieces: its language and `</s>`."""


class Codec(Protocol):
    """Text to model ids and back."""

    @property
    def languages(self) -> Mapping[str, int]:
        """Language code to id."""

    @property
    def unk_id(self) -> int:
        """Stands in a source for what the vocabulary lacks."""

    def knows(self, text: str) -> bool:
        """Whether the vocabulary lacks nothing of a text."""

    def encode(self, texts: Sequence[str], source_lang: str) -> list[list[int]]:
        """Encoder input of each text, with language token and `</s>`."""

    def cut(self, source: Sequence[int], max_tokens: int) -> list[int]:
        """An encoder input without its last pieces, so that it has `max_tokens` tokens."""

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each target sequence."""


@dataclass(frozen=True, slots=True)
class SplitRules:
    """What is done to texts before they are encoded, and how long they may be."""

    max_source_tokens: int = 1022
    """Without language token and `</s>`."""
    max_target_tokens: int | None = None
    """None: each row's own (`default_target_limit`)."""
    too_long: TooLong = "error"
    normalize: Normalize = "auto"
    emoji: Emoji = "keep"
    """Emoji are kept in their places, and what stands around them is translated by itself."""

    def __post_init__(self) -> None:
        for flag, value, known in (
            ("--normalize", self.normalize, NORMALIZE),
            ("--emoji", self.emoji, EMOJI),
        ):
            if value not in known:
                raise UsageError(f"{flag} {value}: choose {', '.join(known[:-1])} or {known[-1]}")


def check_too_long(value: str) -> TooLong:
    """Return a choice of --too-long, or refuse it."""
    for known in TOO_LONG:
        if value == known:
            return known
    raise UsageError(f"--too-long {value}: choose error or cut")


_Place = int | tuple[int, int]
"""Which text of a row, or which text and which part of it."""


class _Pending:
    """Texts that are tokenised in one call."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.owners: list[OpenRow] = []
        self.places: list[_Place] = []

    def add(self, text: str, row: OpenRow, place: _Place) -> None:
        """Let a text wait (`Splitter.split` does the same by itself, for speed)."""
        self.texts.append(text)
        self.owners.append(row)
        self.places.append(place)


class Splitter:
    """Records in, open rows out; the same rules for all of them."""

    def __init__(self, codec: Codec, rules: SplitRules) -> None:
        self._codec = codec
        self._unk_id = codec.unk_id
        self._rules = rules
        self._normalize = Normalizer(rules.normalize, codec.knows)
        self._cuts = rules.emoji == "keep"
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
        pending: dict[str, _Pending] = {}
        last_lang = None
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
                        texts = pending.setdefault(last_lang, _Pending())
                    if text.isascii():
                        texts.texts.append(text)
                        texts.owners.append(row)
                        texts.places.append(text_index)
                    else:
                        self._add_text(texts, text, row, text_index)
                text_index += 1  # noqa: SIM113 (enumerate costs a tuple a text)
        for source_lang, texts in pending.items():
            try:
                encoded = self._codec.encode(texts.texts, self._code(source_lang))
            except UsageError as error:
                for row in texts.owners:
                    row.fail(str(error))
                continue
            for row, place, tokens in zip(texts.owners, texts.places, encoded, strict=True):
                if row.error is None and len(tokens) > NUM_SPECIALS:
                    self._add(row, place, tokens)
        return rows

    def _add_text(self, texts: "_Pending", text: str, row: OpenRow, text_index: int) -> None:
        """Let a text wait for its tokens: as a whole, or its words between emoji."""
        parts = cut_at_emoji(text) if self._cuts else None
        if parts is None:
            texts.add(self._normalize(text), row, text_index)
            return
        row.mark = max(row.mark, COPIED)
        row.parts = row.parts or {}
        row.parts[text_index] = Parts(parts)
        for part in range(0, len(parts), 2):
            if any(map(str.isalnum, parts[part])):
                texts.add(self._normalize(parts[part]), row, (text_index, part))

    def _add(self, row: OpenRow, place: "_Place", tokens: list[int]) -> None:
        record = row.record
        is_cut = False
        if len(tokens) > self._max_source_tokens:
            is_cut = True
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
        if self._unk_id in tokens:
            row.num_unknown += tokens.count(self._unk_id)
            row.mark = max(row.mark, UNKNOWN)
        part, num_parts = 0, 1
        if isinstance(place, tuple):
            place, part = place
            assert row.parts is not None
            num_parts = len(row.parts[place].texts)
            row.parts[place].num_waiting += 1
        limit = self._limits[len(tokens)]
        segment = Segment(
            record, place, part, num_parts, tokens, target_ids, limit, is_cut, row=row
        )
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


def deliver(
    results: list[tuple[Segment, tuple[Hypothesis, ...]]], codec: Codec, scripts: Scripts
) -> None:
    """Write finished segments, and their twins, into their rows; decode in one call."""
    decoded = codec.decode([hyp.tokens for _, hyps in results for hyp in hyps])
    position = 0
    for segment, hyps in results:
        mark = OK
        if len(hyps) == 1:  # most have one target, and tuples cost
            hyp = hyps[0]
            text = decoded[position]
            part: Part = ((text,), (hyp.score,))
            position += 1
            if hyp.finish != "eos":
                mark = max(mark, _MARK_OF_FINISH[hyp.finish])
            elif scripts.is_other(text, segment.target_ids[0]):
                mark = SCRIPT
        else:
            end = position + len(hyps)
            part = (tuple(decoded[position:end]), tuple([hyp.score for hyp in hyps]))
            position = end
            mark = max([mark, *[_MARK_OF_FINISH[hyp.finish] for hyp in hyps]])
            if mark == OK and any(map(scripts.is_other, part[0], segment.target_ids)):
                mark = SCRIPT
        _fill(segment, part, mark)
        if segment.twins:
            for twin in segment.twins:
                _fill(twin, part, mark)


def _fill(segment: Segment, part: Part, mark: int) -> None:
    row: OpenRow = segment.row
    if row.error is not None:
        return
    if mark == FAILED:
        # nobody can mend such a row, and those around it are as good as ever
        row.fail("the model's scores were not finite; --dtype float32 may help", ends_run=False)
        return
    if segment.is_cut:  # by itself: its twin may have been so short from the start
        mark = CUT
    elif mark == OK and segment.is_repeated:
        mark = REPEATED
    if mark > row.mark:
        row.mark = mark
    row.num_waiting -= 1
    if segment.num_parts > 1:
        assert row.parts is not None
        parts = row.parts[segment.text_index]
        parts.finished[segment.part] = part
        parts.num_waiting -= 1
        if parts.num_waiting:
            return
        part = parts.joined(len(segment.target_ids))
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
            return Translation(record, (texts,), (scores,), row.status)
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
        row.status, row.error,
    )  # fmt: skip
