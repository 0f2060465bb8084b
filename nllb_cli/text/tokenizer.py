"""Text to ids and back, for both model families.

Ids are those of the reference tokenisers (SentencePiece's own pieces, shifted or looked up); the
language token stands before the source. Token names in a text, such as `</s>`, are plain text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nllb_cli.errors import ModelError, UsageError
from nllb_cli.languages import Family
from nllb_cli.text.pieces import Pieces, load_pieces
from nllb_cli.text.vocabulary import (
    SPECIAL_IDS,
    TokenizerFiles,
    is_language_token,
    language_ids,
    read_tokenizer_files,
)

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Pieces, languages and templates of one checkpoint."""

    family: Family
    languages: Mapping[str, int]
    """Language code to id."""
    size: int
    """Ids from here on have no token and must never be produced."""
    is_legacy: bool
    """True when the source language goes last, as checkpoints of transformers before 4.28 want."""
    notes: tuple[str, ...]
    """What a person should be told about this tokeniser before a run."""
    _pieces: Pieces = field(repr=False)
    _names: Mapping[int, str] = field(repr=False)
    """Pieces that stand for text; `▁` is a space."""

    def encode(self, texts: Sequence[str], source_lang: str | None = None) -> list[list[int]]:
        """Return the encoder input of each text, or its pieces alone without a `source_lang`.

        A lone surrogate, which UTF-8 cannot hold, counts as U+FFFD.
        """
        whole = [_without_surrogates(text) for text in texts]
        to_id = self._pieces.ids.__getitem__
        encoded = [list(map(to_id, indices)) for indices in self._pieces.processor.encode(whole)]
        if source_lang is None:
            return encoded
        head, tail = self._around(source_lang)
        return [[*head, *pieces, *tail] for pieces in encoded]

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of pieces of each text."""
        return [len(pieces) for pieces in self.encode(texts)]

    def source(self, pieces: Sequence[int], lang: str) -> list[int]:
        """Return the encoder input: language token, pieces, `</s>`."""
        head, tail = self._around(lang)
        return [*head, *pieces, *tail]

    def cut(self, source: Sequence[int], max_tokens: int) -> list[int]:
        """Return an encoder input without its last pieces, so that it has `max_tokens` tokens."""
        if len(source) <= max_tokens:
            return list(source)
        num_tail = 2 if self.is_legacy else 1
        return [*source[: max_tokens - num_tail], *source[-num_tail:]]

    def language_id(self, code: str) -> int:
        """Return the id of a language code."""
        if code not in self.languages:
            raise UsageError(
                f"language {code[:40]!r} is not in this model; `nllb langs` lists them"
            )
        return self.languages[code]

    def decode(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence; ids that stand for no text leave no trace."""
        name = self._names.get
        texts = ["".join([name(token_id, "") for token_id in ids]) for ids in sequences]
        return [text.replace("\u2581", " ").strip() for text in texts]

    @property
    def unk_id(self) -> int:
        """The id that stands for what the vocabulary lacks."""
        return SPECIAL_IDS["<unk>"]

    def knows(self, text: str) -> bool:
        """Return whether the vocabulary lacks nothing of a text."""
        return self.unk_id not in self.encode([text])[0]

    def _around(self, lang: str) -> tuple[list[int], list[int]]:
        """Return what stands before and after the pieces of a source."""
        eos_id, lang_id = SPECIAL_IDS["</s>"], self.language_id(lang)
        return ([], [eos_id, lang_id]) if self.is_legacy else ([lang_id], [eos_id])


def load_tokenizer(directory: Path, *, is_legacy: bool | None = None) -> Tokenizer:
    """Load the tokeniser of a checkpoint directory.

    `is_legacy` says where the source language goes when the checkpoint's own `legacy_behaviour` is
    not to be believed.
    """
    files = read_tokenizer_files(directory)
    pieces = load_pieces(files)
    languages = language_ids(files, max(pieces.ids) + 1)
    names = _text_names(files, pieces)
    _check_free(directory, languages, names)
    known_ids = {*names, *languages.values(), *files.added.values(), *SPECIAL_IDS.values()}
    if files.family == "nllb" and not files.added:
        known_ids.add(max(languages.values()) + 1)  # <mask>
    is_legacy = files.is_legacy if is_legacy is None else is_legacy
    return Tokenizer(
        family=files.family,
        languages=dict(sorted(languages.items(), key=lambda item: item[1])),
        size=max(known_ids) + 1,
        is_legacy=is_legacy,
        notes=_notes(files, is_legacy),
        _pieces=pieces,
        _names=names,
    )


def _check_free(directory: Path, languages: Mapping[str, int], names: Mapping[int, str]) -> None:
    """Refuse a language whose id is taken, as it may be in a file that a person has written."""
    taken = {**names, **{token_id: token for token, token_id in SPECIAL_IDS.items()}}
    for code, token_id in languages.items():
        if token_id in taken:
            raise ModelError(
                f"{directory}: {code} has the id {token_id} in the tokeniser's files, and "
                f"{taken[token_id]!r} has it, too; mend added_tokens.json, or fetch the files again"
            )


def _notes(files: TokenizerFiles, is_legacy: bool) -> tuple[str, ...]:
    notes = []
    if is_legacy:
        notes.append("legacy tokeniser: the source language goes after the text, not before it")
    if files.words:
        notes.append(f"{len(files.words)} words added to the vocabulary are read as plain text")
    return tuple(notes)


def _text_names(files: TokenizerFiles, pieces: Pieces) -> dict[int, str]:
    """Return the piece of each id that stands for text."""
    names = dict(zip(pieces.ids, pieces.names, strict=True))
    if files.family == "m2m100":
        names = {token_id: name for name, token_id in files.vocab.items()}
    names |= {token_id: name for name, token_id in files.words.items()}
    specials = {*SPECIAL_IDS, *pieces.controls, *(files.added.keys() - files.words.keys())}
    return {
        token_id: name
        for token_id, name in names.items()
        if name not in specials and not is_language_token(name, files.family)
    }


def _without_surrogates(text: str) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    # a pair of them is a character; what is left alone becomes U+FFFD
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
