"""What the tokeniser files of a checkpoint directory say about its family and its ids.

Ids of added tokens are taken from the first file that has them: tokenizer.json,
tokenizer_config.json, added_tokens.json. Where none names a language, the rule of the original
checkpoints counts. Nothing in these files is trusted: what has another shape is a ModelError.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nllb_cli.errors import ModelError
from nllb_cli.languages import Family, family_languages

SPECIAL_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
MAX_ID = 1 << 24  # far above any vocabulary; larger ids are nonsense
_WMT21_CODES = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")

_LANGUAGE_TOKEN = {
    "nllb": re.compile(r"([a-z]{2,3}_[A-Z][a-z]{3}(?:_[A-Za-z0-9]+)?)"),
    "m2m100": re.compile(r"__([A-Za-z][A-Za-z0-9_-]*?)__"),
}
_CLASSES: dict[str, Family] = {
    "NllbTokenizer": "nllb",
    "NllbTokenizerFast": "nllb",
    "M2M100Tokenizer": "m2m100",
}
_GENERIC_CLASSES = ("", "PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The JSON files of a directory, read and checked."""

    directory: Path
    family: Family
    is_legacy: bool
    """True when the model was trained with the source language last (`legacy_behaviour`)."""
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    """tokenizer.json, or empty."""
    vocab: dict[str, int]
    """M2M-100's vocab.json, or the vocabulary of tokenizer.json, or empty."""
    added: dict[str, int]
    """Tokens beside the SentencePiece model, with their ids."""
    words: dict[str, int]
    """Those of `added` that stand for text, as fine-tunes add them."""


def read_tokenizer_files(directory: Path) -> TokenizerFiles:
    """Read what a directory has of the four JSON files of its tokeniser."""
    config = _read_object(directory / "tokenizer_config.json")
    family = _family(directory, config)
    tokenizer = _read_object(directory / "tokenizer.json") if family == "nllb" else {}
    if family == "m2m100":
        vocab = _read_object(directory / "vocab.json")
        where = directory / "vocab.json"
    else:
        vocab = _object(tokenizer, "model", "vocab", where=directory / "tokenizer.json")
        where = directory / "tokenizer.json"
    _check_ids(where, vocab)
    added, words = _added_tokens(directory, config, tokenizer)
    _check_special_ids(directory, vocab)
    _check_special_ids(directory, added)
    is_legacy = config.get("legacy_behaviour") is True
    return TokenizerFiles(directory, family, is_legacy, config, tokenizer, vocab, added, words)


def language_ids(files: TokenizerFiles, first_id: int) -> dict[str, int]:
    """Return the id of each language code; `first_id` is the first after NLLB's pieces."""
    # files of 2022 hold the languages in the vocabulary, too
    found = _languages_in(files.vocab, files.family) | _languages_in(files.added, files.family)
    if files.family == "m2m100":
        return _m2m100_ids(files, found)
    return _nllb_ids(files.directory, found, first_id)


def is_language_token(token: str, family: Family) -> bool:
    """Tell whether a token of the vocabulary stands for a language rather than for text."""
    return "_" in token and _LANGUAGE_TOKEN[family].fullmatch(token) is not None


def _languages_in(ids: Mapping[str, int], family: Family) -> dict[str, int]:
    """Return the codes of those tokens that stand for a language."""
    match = _LANGUAGE_TOKEN[family].fullmatch
    candidates = ((match(token), token_id) for token, token_id in ids.items() if "_" in token)
    return {found[1]: token_id for found, token_id in candidates if found}


def _nllb_ids(directory: Path, found: dict[str, int], first_id: int) -> dict[str, int]:
    """Languages follow the pieces in a fixed order, unless the files have an order of their own."""
    standard = {c.code: first_id + k for k, c in enumerate(family_languages("nllb"))}
    if _is_shifted(found, standard):
        raise _shifted(directory, found, standard)
    has_own_order = any(code in standard for code in found)
    has_own_order |= not set(found.values()).isdisjoint(standard.values())
    return found if has_own_order else standard | found


def _m2m100_ids(files: TokenizerFiles, found: dict[str, int]) -> dict[str, int]:
    """Languages follow vocab.json in a fixed order; a file may have given such an id away."""
    codes = [language.code for language in family_languages("m2m100")]
    if files.config.get("language_codes") == "wmt21":
        codes = list(_WMT21_CODES)
    standard = {code: len(files.vocab) + k for k, code in enumerate(codes)}
    own = {code: token_id for code, token_id in found.items() if code not in standard}
    for code, token_id in found.items():
        if standard.get(code, token_id) != token_id:
            raise ModelError(
                f"{files.directory}: __{code}__ is {token_id} in the tokeniser's files, and "
                f"{standard[code]} by the length of vocab.json; they are not of one checkpoint"
            )
    return {c: i for c, i in standard.items() if i not in set(own.values())} | own


def _is_shifted(found: Mapping[str, int], standard: Mapping[str, int]) -> bool:
    """Tell whether all known languages stand one id too high, behind a misplaced `<mask>`."""
    common = [code for code in found if code in standard]
    return len(common) > 1 and all(found[code] == standard[code] + 1 for code in common)


def _shifted(directory: Path, found: Mapping[str, int], standard: Mapping[str, int]) -> ModelError:
    code = "eng_Latn" if "eng_Latn" in found else next(c for c in found if c in standard)
    return ModelError(
        f"{directory}: language ids are shifted by one ({code} is {found[code]}, not "
        f"{standard[code]}), a known fault of transformers 4.38 to 4.57; use the original model's "
        f"tokeniser files (a model that was trained with the shifted ids is not supported)"
    )


def _family(directory: Path, config: Mapping[str, Any]) -> Family:
    name = str(config.get("tokenizer_class") or "")
    if name in _CLASSES:
        return _CLASSES[name]
    if name not in _GENERIC_CLASSES:
        raise ModelError(f"{directory}: a {name[:40]} is neither of NLLB-200 nor of M2M-100")
    return "m2m100" if (directory / "vocab.json").exists() else "nllb"


def _added_tokens(
    directory: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return all added tokens, and those that no file calls special."""
    path = directory / "tokenizer.json"
    entries = tokenizer.get("added_tokens") or []
    if not isinstance(entries, list):
        raise ModelError(f"{path}: added_tokens is not a list")
    found: list[tuple[Path, Any, Any]] = [
        (path, entry, _object(entry, where=path).get("id")) for entry in entries
    ]
    path = directory / "tokenizer_config.json"
    for key, entry in _object(config, "added_tokens_decoder", where=path).items():
        found.append((path, entry, int(key) if re.fullmatch("[0-9]{1,9}", key) else key))
    path = directory / "added_tokens.json"
    for token, number in _read_object(path).items():
        found.append((path, {"content": token, "special": True}, number))
    added: dict[str, int] = {}
    words: dict[str, int] = {}
    for path, entry, token_id in found:
        content = _object(entry, where=path).get("content")
        if not isinstance(content, str):
            raise ModelError(f"{path}: an added token has no content")
        _check_ids(path, {content: token_id})
        if content not in added and entry.get("special") is False:
            words[content] = token_id
        added.setdefault(content, token_id)
    return added, words


def _check_ids(path: Path, ids: Mapping[str, Any]) -> None:
    """Refuse an id that is no number of a vocabulary, and a token that is no text."""
    for token, token_id in ids.items():
        if type(token_id) is not int or not 0 <= token_id < MAX_ID:
            raise ModelError(f"{path}: {token[:40]!r} has no usable id ({str(token_id)[:40]})")
    try:
        "".join(ids).encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"{path}: a token is not valid Unicode") from error


def _check_special_ids(directory: Path, ids: Mapping[str, int]) -> None:
    for token, token_id in SPECIAL_IDS.items():
        if ids.get(token, token_id) != token_id:
            raise ModelError(
                f"{directory}: {token} has id {ids[token]}, and {token_id} in NLLB-200 and "
                f"M2M-100; this is the tokeniser of another model"
            )


def _object(value: object, *keys: str, where: Path) -> dict[str, Any]:
    """Return the object under `keys`; what is absent or null is empty."""
    for key in (None, *keys):
        value = value if key is None else value.get(key) or {}  # type: ignore[attr-defined]
        if not isinstance(value, dict):
            raise ModelError(f"{where}: {key or 'an entry'} is not an object")
    assert isinstance(value, dict)
    return value


def _read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty when there is no such file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not JSON; download it again") from error
    return _object(value, where=path)
