"""Names of the fields that a row gains, and the languages that a row asks for.

Default names of the translations: one field and one target give `translation`; several fields
`{field}_translation`; several targets `translation_{tgt}`; both `{field}_translation_{tgt}`.
`--output-field` may be a pattern with `{field}` and `{tgt}`, or a comma-separated list.
An output field that a row has already is refused under a default name, and replaced in its place
when the person named it: naming it is taken as consent. The text's own field takes more than its
name, which may be a slip: `--output-field {field}` puts the translation in its place.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nllb_cli.errors import InputError, UsageError
from nllb_cli.options import IoOptions
from nllb_cli.records import Translation

ERROR_FIELD = "translation_error"
"""Holds why a row could not be translated (under --on-error keep)."""
RAW_FIELD = "raw"
"""Holds the text of a row that is no JSON object (under --on-error keep)."""


@dataclass(frozen=True, slots=True)
class OutputFields:
    """The fields that a row gains."""

    names: tuple[str, ...]
    """Of the translations: for each target, for each field."""
    status: str | None
    may_replace: bool
    """Whether a field of the same name may be overwritten."""


def output_fields(options: IoOptions) -> OutputFields:
    """Work out the names of the fields that hold translations and status."""
    pattern = options.output_field or _default_pattern(options)
    for name in re.findall(r"\{[^{}]*\}", pattern):
        if name not in ("{field}", "{tgt}"):
            raise UsageError(
                f"--output-field {pattern}: {name} is not filled in; {{field}} and {{tgt}} are"
            )
    targets = options.target_langs if len(options.target_langs) > 1 else options.target_langs[:1]
    places = [(field, target) for target in targets or ("",) for field in options.fields]
    listed = pattern.split(",")
    if len(listed) == len(places) > 1:
        names = listed
    else:
        names = [pattern.replace("{field}", f).replace("{tgt}", t) for f, t in places]
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f"--output-field {pattern}: {len(places)} different names are needed;"
            " use {field} and {tgt} in the name, or list them with commas"
        )
    _refuse_losses(pattern, names, options)
    return OutputFields(tuple(names), options.status_field, options.output_field is not None)


def _refuse_losses(pattern: str, names: Sequence[str], options: IoOptions) -> None:
    """Refuse a name for the translation or the status that something else has."""
    if options.status_field in names:
        raise UsageError(f"--status {options.status_field}: that field holds a translation")
    read = [*options.fields, *filter(None, [options.source_field, options.target_field])]
    if options.status_field in read:
        raise UsageError(
            f"--status-field {options.status_field}: that field is read; choose another name"
        )
    lost = [] if "{field}" in pattern else [name for name in names if name in read]
    if lost:
        raise UsageError(
            f"--output-field {pattern}: field {lost[0]!r} is read and would be lost; choose "
            "another name, or {field}, which puts each translation in its text's place"
        )


def _default_pattern(options: IoOptions) -> str:
    pattern = "{field}_translation" if len(options.fields) > 1 else "translation"
    return pattern + ("_{tgt}" if len(options.target_langs) > 1 else "")


def row_languages(row: Mapping[str, Any], options: IoOptions) -> tuple[str, tuple[str, ...]]:
    """Return source and target languages as the row names them.

    Raises:
        InputError: a language field is no string, or absent with no default given.
    """
    source, targets = options.source_lang, options.target_langs
    if options.source_field:
        source = _language(row, options.source_field, source, "--src")
    if options.target_field:
        targets = (_language(row, options.target_field, "".join(targets), "--tgt"),)
    return source, targets


def _language(row: Mapping[str, Any], field: str, default: str, flag: str) -> str:
    value = row.get(field)
    if value is None or value == "":
        value = default
    if not isinstance(value, str):
        raise InputError(f"field {field!r} holds {kind(value)}, not a language code")
    if not value:
        raise InputError(
            f"field {field!r} names no language and there is no {flag} to fall back on"
        )
    return value


def kind(value: object) -> str:
    """Name the JSON type of a value for an error text."""
    if value is None:
        return "null"
    names = {bool: "true or false", dict: "an object", list: "a list", str: "a string"}
    return names.get(type(value), "a number")


def flat_texts(translation: Translation) -> list[str | None]:
    """Return the translations for each target, for each field; a failed text is empty."""
    texts = [text for target in translation.texts for text in target]
    if translation.error is not None:
        texts = [text or "" for text in texts]
    return texts
