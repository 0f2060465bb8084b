"""Tell a translation that is not in its language's script: what a model does that lost its way."""

import unicodedata
from collections.abc import Mapping

from nllb_cli.languages import describe

MIN_LETTERS = 8
"""Fewer letters than this may be a name or an abbreviation, in any script."""
_FIRST_WORDS = {
    script: (script.upper(),)
    for script in (
        *("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian"),
        *("Greek", "Gujarati", "Gurmukhi", "Hebrew", "Kannada", "Khmer", "Lao", "Latin"),
        *("Malayalam", "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan", "Tifinagh"),
    )
} | {
    "Han": ("CJK",),
    "Hangul": ("HANGUL", "CJK"),
    "Japanese": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "Odia": ("ORIYA",),
}
"""How Unicode begins the names of a script's letters."""
_OTHER, _RIGHT, _WRONG = "", "+", "-"


class Scripts:
    """Which letters belong to the script of each target language."""

    def __init__(self, languages: Mapping[str, int]) -> None:
        """`languages` are codes to ids; one whose script is not known is never wrong."""
        tables: dict[tuple[str, ...], _Table] = {}
        self._tables: dict[int, _Table] = {}
        self.ascii_ids: set[int] = set()
        """Languages of which no text in ASCII is in another script."""
        for language in describe(languages):
            words = _FIRST_WORDS.get(language.script.split(" ")[0])
            if words is not None:
                self._tables[language.id] = tables.setdefault(words, _Table(words))
            if words is None or "LATIN" in words:
                self.ascii_ids.add(language.id)

    def is_other(self, text: str, target_id: int) -> bool:
        """Whether most letters of a translation are of another script than its language's.

        Need not be asked of ASCII in a language of `ascii_ids`.
        """
        table = self._tables.get(target_id)
        if table is None or len(text) < MIN_LETTERS:
            return False
        letters = text.translate(table)
        return len(letters) >= MIN_LETTERS and 2 * letters.count(_WRONG) > len(letters)


class _Table(dict[int, str]):
    """Whether a character is a letter of the script; filled as characters are met."""

    def __init__(self, first_words: tuple[str, ...]) -> None:
        self._first_words = first_words

    def __missing__(self, code: int) -> str:
        char = chr(code)
        found = _OTHER
        if char.isalpha():
            name = unicodedata.name(char, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
            found = _RIGHT if name.split(" ")[0] in self._first_words else _WRONG
        self[code] = found
        return found
