"""Language codes and names: what a person wrote, to a code of the loaded model.

The rule of `resolve`, first match wins:
1. A code of the model, as it is (`eng_Latn`, or `en` of M2M-100).
2. Such a code in other letters: any case, `-` for `_`, M2M-100's `__en__`.
3. A language tag: an ISO 639-1, 639-2 or 639-3 code, alone or with script and region (BCP 47), or
   a name that FLORES+ gave later (`cmn_Hans`). A macro-language stands for the member that CLDR
   puts in its place (`no` is Bokmål, `sq` Tosk Albanian, `ar` Modern Standard Arabic). A script
   must be the model's; a region counts only where it implies a script (`zh-TW`) or another
   language (`fa-AF` is Dari).
4. An English name of `languages.tsv`, in any case and order of words, accents optional.

What still fits several codes of the model (`zh`: two scripts) is refused, and so is what fits none.
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from nllb_cli.errors import UsageError

Family = Literal["nllb", "m2m100"]

TABLE = Path(__file__).with_name("languages.tsv")
TYPO_LIKENESS = 0.85  # "frech" and "French" have 0.91, but "Deutsch" and "Dutch" have 0.83
MANY_CODES = 12  # a model with no more codes than this has all of them listed in an error

_TAG = re.compile(
    r"(?P<lang>[a-z]{2,3})(?:-(?P<extlang>[a-z]{3}))?(?:-(?P<script>[a-z]{4}))?"
    r"(?:-(?P<region>[a-z]{2}|[0-9]{3}))?(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"
)
# a region that implies a script other than the model's must not pass for the model's
_REGION_SCRIPTS = {
    "zho": {"CN": "Hans", "SG": "Hans", "MY": "Hans", "TW": "Hant", "HK": "Hant", "MO": "Hant"},
    "yue": {"CN": "Hans"},
    "kaz": {"CN": "Arab"},
    "khk": {"CN": "Mong"},
    "pan": {"PK": "Arab"},
    "srp": {"ME": "Latn"},
    "uzn": {"AF": "Arab"},
}
_SCRIPT_ALIASES = {"Kore": "Hang", "Hrkt": "Jpan"}


@dataclass(frozen=True, slots=True)
class Language:
    """One row of `nllb langs`."""

    code: str
    name: str
    script: str
    id: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """The code that a query stands for."""

    code: str
    is_literal: bool
    """True when the query was the code itself, so that there is nothing to tell."""


class _Meaning(NamedTuple):
    """A language, and its script where one was asked for."""

    lang: str
    script: str | None


class _Row(NamedTuple):
    family: str
    code: str
    id: int
    name: str
    script: str
    meaning: _Meaning
    tags: tuple[str, ...]
    names: tuple[str, ...]


def resolve(query: str, known_codes: Collection[str]) -> Resolution:
    """Return the one code of `known_codes` that `query` stands for, or raise UsageError."""
    if query in known_codes:
        return Resolution(query, is_literal=True)
    key = _code_key(query)
    codes = [code for code in known_codes if key == _code_key(code)]
    meanings = _meanings(query)
    if not codes:
        codes = [code for code in known_codes if any(_fits(m, _meaning(code)) for m in meanings)]
    if len(codes) == 1:
        return Resolution(codes[0], is_literal=False)
    if codes:
        raise UsageError(f"language {_quote(query)}: choose {_listed(codes)}")
    raise UsageError(_no_match(query, meanings, known_codes))


def family_languages(family: Family) -> list[Language]:
    """Return the languages of the original checkpoints of a family, in the order of their ids."""
    rows = [row for row in _table() if row.family == family]
    return [Language(row.code, row.name, row.script, row.id) for row in rows]


def describe(ids: Mapping[str, int]) -> list[Language]:
    """Return the languages of a tokenizer (code to id), in the order of their ids.

    A code outside the table, as fine-tunes add them, is its own name.
    """
    found = []
    for code, token_id in sorted(ids.items(), key=lambda item: item[1]):
        row = _rows_by_code().get(code)
        name, script = (row.name, row.script) if row else (code, _meaning(code).script or "")
        found.append(Language(code, name, script, token_id))
    return found


def name_of(code: str) -> str:
    """Return the English name of a code, or the code itself where the table has none."""
    row = _rows_by_code().get(code)
    return row.name if row else code


def _meanings(query: str) -> list[_Meaning]:
    """Return what a tag or a name can mean; several only for a name that languages share."""
    tag = _tag_meaning(query)
    named = _meanings_by_name().get(_name_key(query), [])
    if tag and (tag.lang in _known_langs() or not named):
        return [tag]
    return named


def _tag_meaning(query: str) -> _Meaning | None:
    """Return the meaning of a BCP 47 tag; a language that the table lacks means itself."""
    key = _code_key(query)
    match = _TAG.fullmatch(key)
    if not match:
        return None
    tags = _meanings_by_tag()
    if key in tags:
        return tags[key]
    if not match["script"] and f"{match['lang']}-{match['region']}" in tags:
        return tags[f"{match['lang']}-{match['region']}"]
    subtag = match["extlang"] or match["lang"]
    lang = tags[subtag].lang if subtag in tags else subtag
    script = (match["script"] or "").title()
    script = script or _REGION_SCRIPTS.get(lang, {}).get((match["region"] or "").upper(), "")
    return _Meaning(lang, _SCRIPT_ALIASES.get(script, script) or None)


def _meaning(code: str) -> _Meaning:
    """Return the meaning of a model's code, which may be one that a fine-tune added."""
    row = _rows_by_code().get(code)
    if row:
        return row.meaning
    return _tag_meaning(code) or _Meaning(code, None)


def _fits(asked: _Meaning, offered: _Meaning) -> bool:
    return asked.lang == offered.lang and asked.script in (None, offered.script)


@cache
def _table() -> list[_Row]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return [_parse(line.split("\t")) for line in lines]


def _parse(cells: list[str]) -> _Row:
    family, code, token_id, name, script, meaning, tags, names = cells
    lang, script_code = meaning.split("_")
    others = tuple(names.split("; ")) if names else ()
    return _Row(
        family, code, int(token_id), name, script, _Meaning(lang, script_code),
        tuple(tags.lower().split()), others,
    )  # fmt: skip


@cache
def _rows_by_code() -> dict[str, _Row]:
    return {row.code: row for row in _table()}


@cache
def _meanings_by_tag() -> dict[str, _Meaning]:
    """Language subtags mean a language in any script; whole tags of the table mean their row."""
    found: dict[str, _Meaning] = {}
    for row in _table():
        found.setdefault(row.meaning.lang, _Meaning(row.meaning.lang, None))
        for tag in row.tags:
            is_whole = "-" in tag
            found[tag] = row.meaning if is_whole else _Meaning(row.meaning.lang, None)
    return found


@cache
def _known_langs() -> frozenset[str]:
    return frozenset(row.meaning.lang for row in _table())


@cache
def _meanings_by_name() -> dict[str, list[_Meaning]]:
    found: dict[str, list[_Meaning]] = {}
    for row in _table():
        for name in (row.name, *row.names):
            meanings = found.setdefault(_name_key(name), [])
            if row.meaning not in meanings:
                meanings.append(row.meaning)
    return found


def _code_key(text: str) -> str:
    return text.strip().strip("_").replace("_", "-").lower()


def _name_key(text: str) -> str:
    """Return the words of a name in alphabetical order, without case, accents and marks."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    words = re.findall(r"\w+", re.sub(r"['’ʼ`]", "", plain.replace("_", " ")).casefold())
    return " ".join(sorted(word for word in words if word != "script"))


def _no_match(query: str, meanings: list[_Meaning], known_codes: Collection[str]) -> str:
    names = [row.name for row in _table() if any(_fits(m, row.meaning) for m in meanings)]
    what = f"language {_quote(query)}{_in_brackets(names[0]) if names else ''} is not in this model"
    if not known_codes:
        return f"{what}, which has no languages: name them in its added_tokens.json"
    if len(known_codes) <= MANY_CODES:
        meant = max(known_codes, key=lambda code: _likeness(query, code))
        is_typo = not names and _likeness(query, meant) >= TYPO_LIKENESS
        question = f"did you mean {_listed([meant])}? " if is_typo else ""
        return f"{what}: {question}it has {_listed(sorted(known_codes), last='and')}"
    nearest = _nearest(query, meanings, known_codes)
    return f"{what}: did you mean {_listed(nearest)}? `nllb langs` lists all"


def _nearest(query: str, meanings: list[_Meaning], codes: Iterable[str]) -> list[str]:
    """Return three codes: the same language in another script, then the most alike in letters."""

    def rank(code: str) -> tuple[bool, float, str]:
        lang = _meaning(code).lang
        return all(m.lang != lang for m in meanings), -_likeness(query, code), code

    return sorted(codes, key=rank)[:3]


def _likeness(query: str, code: str) -> float:
    """Return how much a query looks like a code or one of its names, from 0 to 1."""
    key, name_key = _code_key(query[:60]), _name_key(query[:60])  # a typo is short
    row = _rows_by_code().get(code)
    names = [_name_key(name) for name in (row.name, *row.names)] if row else []
    pairs = [(key, _code_key(code)), (key, _meaning(code).lang)]
    pairs += [(name_key, name) for name in names]
    return max(difflib.SequenceMatcher(None, a, b).ratio() for a, b in pairs)


def _listed(codes: Collection[str], last: str = "or") -> str:
    words = [
        code + (_in_brackets(name_of(code)) if code in _rows_by_code() else "") for code in codes
    ]
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _in_brackets(name: str) -> str:
    return f" ({name.replace(' (', ', ').replace(')', '')})"


def _quote(query: str) -> str:
    """Show a query in one line of bounded length."""
    shown = query if len(query) <= 40 else query[:39] + "…"
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown) + '"'
