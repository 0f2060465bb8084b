"""Write what a vocabulary lacks with characters that it has: quotes, dashes, spaces, widths.

The vocabulary of NLLB-200 was built on text whose punctuation was made plain beforehand (by Moses'
rules), and the published tokenisers leave that out: curly quotes are unknown to them and vanish.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Literal

Normalize = Literal["auto", "plain", "nfc", "off"]
NORMALIZE: tuple[Normalize, ...] = ("auto", "plain", "nfc", "off")

_GROUPS = {
    '"': "“”„‟″«»〝〞〟＂「」『』《》",
    "'": "‘’‚‛′‵ʼ´｀＇‹›",
    "-": "‐‑‒–−﹣－━",
    " - ": "—―",
    "...": "…",
    " ": "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))),
    "": "\u00ad\u200b\u200e\u200f\u2060\ufeff"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ",": "，、،‚",
    ".": "．",
    ". ": "。",
    ":": "：∶",
    ";": "；؛",
    "?": "？؟",
    "!": "！",
    "(": "（",
    ")": "）",
    "[": "【［〔",
    "]": "】］〕",
    "<": "〈＜",
    ">": "〉＞",
    "%": "％٪",
    "~": "～〜",
    "*": "•·",
}
PLAIN = {char: plain for plain, chars in reversed(_GROUPS.items()) for char in chars}
"""Punctuation to its plain form."""
_HAS_MARK = re.compile("[\u0300-\u036f\u3099\u309a\u0653-\u0655]")


class Normalizer:
    """What is done to texts before they are encoded; one object for a run, since it remembers.

    auto: a character that the vocabulary lacks gives way to its plain form, or else to its
    compatibility form, where the vocabulary has that. plain: all punctuation of `PLAIN` does, and
    then auto. nfc: letters and their marks are composed, and then auto. off: nothing.
    """

    def __init__(self, kind: Normalize, knows: Callable[[str], bool]) -> None:
        """`knows` says whether the vocabulary has all that a text needs."""
        self._kind = kind
        self._table = _Table(knows, PLAIN if kind == "plain" else {})

    def __call__(self, text: str) -> str:
        """Return the text as the model should read it."""
        if text.isascii() or self._kind == "off":
            return text
        if self._kind == "nfc" or _HAS_MARK.search(text):
            text = self._composed(text)
        return text.translate(self._table)

    def _composed(self, text: str) -> str:
        """Compose letters and marks; under auto only those marks that the vocabulary lacks."""
        if self._kind != "nfc" and all(map(self._table.knows_mark, _HAS_MARK.findall(text))):
            return text
        return unicodedata.normalize("NFC", text)


class _Table(dict[int, str]):
    """What each character becomes; filled as characters are met."""

    def __init__(self, knows: Callable[[str], bool], always: dict[str, str]) -> None:
        super().__init__((ord(char), plain) for char, plain in always.items())
        self._knows = knows
        self._known_marks: dict[str, bool] = {}

    def __missing__(self, code: int) -> str:
        char = chr(code)
        found = char if char.isascii() or self._is_known(char) else self._substitute(char)
        self[code] = found
        return found

    def knows_mark(self, mark: str) -> bool:
        """Whether the vocabulary has a combining mark by itself."""
        if mark not in self._known_marks:
            self._known_marks[mark] = self._is_known(mark)
        return self._known_marks[mark]

    def _is_known(self, text: str) -> bool:
        return "\ud800" <= text <= "\udfff" or self._knows(text)

    def _substitute(self, char: str) -> str:
        plain = PLAIN.get(char)
        if plain is not None and (not plain.strip() or self._knows(plain)):
            return plain
        compatible = unicodedata.normalize("NFKC", char)
        return compatible if compatible != char and self._knows(compatible) else char
