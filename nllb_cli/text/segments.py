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
CUT_REMEDY = "--too-long cut translates its beginning"
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
    """Texts that are tokenised in one call, and where they come from."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: list[tuple[OpenRow, _Place]] = []


class Splitter:
    """Records in, open rows out; the same rules for all of them."""

    def __init__(self, codec: Codec, rules: SplitRules) -> None:
        self._codec = codec
        self._unk_id = codec.unk_id
        self._rules = rules
        self._normalize = Normalizer(rules.normalize, codec.knows)
        self._cuts = rules.emoji == "keep"
        self._target_ids: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._last_langs: tuple[str, ...] = ()  # the last row's, and their tokens
        self._last_ids: tuple[int, ...] = ()
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
                    if record.source_lang is not last_lang:
                        last_lang = record.source_lang
                        waiting = pending.setdefault(last_lang, _Pending())
                        texts, places = waiting.texts, waiting.places
                    if text.isascii():
                        texts.append(text)
                        places.append((row, text_index))
                    else:
                        self._add_text(waiting, text, row, text_index)
                text_index += 1  # noqa: SIM113 (enumerate costs a tuple a text)
        for source_lang, waiting in pending.items():
            self._encode(source_lang, waiting)
        return rows

    def _encode(self, source_lang: str, waiting: _Pending) -> None:
        """Tokenise the texts of a language and give their rows segments."""
        try:
            encoded = self._codec.encode(waiting.texts, self._code(source_lang))
        except UsageError as error:
            for row, _ in waiting.places:
                row.fail(str(error))
            return
        add, unk_id, max_tokens = self._add, self._unk_id, self._max_source_tokens
        for (row, place), tokens in zip(waiting.places, encoded, strict=True):
            num_tokens = len(tokens)
            if row.error is not None or num_tokens <= NUM_SPECIALS:
                continue
            is_cut = num_tokens > max_tokens
            if is_cut:
                if self._rules.too_long == "error":
                    row.fail(_too_long(num_tokens - NUM_SPECIALS, max_tokens - NUM_SPECIALS))
                    continue
                tokens = self._codec.cut(tokens, max_tokens)
            if unk_id in tokens:
                row.num_unknown += tokens.count(unk_id)
                row.mark = max(row.mark, UNKNOWN)
            add(row, place, tokens, is_cut)

    def _add_text(self, waiting: _Pending, text: str, row: OpenRow, text_index: int) -> None:
        """Let a text wait for its tokens: as a whole, or its words between emoji."""
        parts = cut_at_emoji(text) if self._cuts else None
        if parts is None:
            waiting.texts.append(self._normalize(text))
            waiting.places.append((row, text_index))
            return
        row.mark = max(row.mark, COPIED)
        row.parts = row.parts or {}
        row.parts[text_index] = Parts(parts)
        for part in range(0, len(parts), 2):
            if any(map(str.isalnum, parts[part])):
                waiting.texts.append(self._normalize(parts[part]))
                waiting.places.append((row, (text_index, part)))

    def _add(self, row: OpenRow, place: _Place, tokens: list[int], is_cut: bool) -> None:
        record = row.record
        if record.target_langs is not self._last_langs:
            try:
                self._last_ids = self._ids_of(record.target_langs)
            except UsageError as error:
                row.fail(str(error))
                return
            self._last_langs = record.target_langs
        part, num_parts = 0, 1
        if isinstance(place, tuple):
            place, part = place
            assert row.parts is not None
            num_parts = len(row.parts[place].texts)
            row.parts[place].num_waiting += 1
        segment = Segment(
            record, place, part, num_parts, tokens, self._last_ids, self._limits[len(tokens)],
            is_cut, False, None, row,
        )  # fmt: skip
        row.segments = (*row.segments, segment) if row.segments else (segment,)
        row.num_waiting += 1

    def _ids_of(self, target_langs: tuple[str, ...]) -> tuple[int, ...]:
        """Language tokens; always the same object for the same languages."""
        if target_langs not in self._target_ids:
            codes = [self._code(name) for name in target_langs]
            self._target_ids[target_langs] = tuple([self._codec.languages[c] for c in codes])
        return self._target_ids[target_langs]

    def _code(self, name: str) -> str:
        """The model's code for a language as a row names it."""
        if name not in self._languages:
            self._languages[name] = resolve(name, self._codec.languages).code
        return self._languages[name]


def _too_long(num_tokens: int, max_tokens: int) -> str:
    return (
        f"the source has {num_tokens:,} tokens and the limit is {max_tokens:,}; "
        f"{CUT_REMEDY}, --on-error keep leaves it empty"
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
            elif (
                not text.isascii() or segment.target_ids[0] not in scripts.ascii_ids
            ) and scripts.is_other(text, segment.target_ids[0]):
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
    if mark != OK or segment.is_cut or segment.is_repeated:
        if mark == FAILED:
            # nobody can mend such a row, and those around it are as good as ever
            row.fail("the model's scores were not finite; --dtype float32 may help", ends_run=False)
            return
        if segment.is_cut:  # by itself: its twin may have been so short from the start
            mark = CUT
        elif mark == OK:
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
            status = "ok" if row.mark == OK else row.status
            return Translation(record, (texts,), (scores,), status)
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
