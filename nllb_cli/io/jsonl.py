"""JSONL, one object a line: the other fields pass through as the bytes they were.

A row is parsed only to find its texts; what comes out is the row's own bytes with the new fields
put before the closing brace, so that number forms, duplicate keys, escapes and order stay.
- Of a duplicate key the last counts, as for all common parsers.
- Blank lines pass as they are. CR before LF is white space of the row and passes.
- New fields follow the row's own style: a space after the colon, or none.
- A lone surrogate is written as its escape, all other characters as they are.
- Control characters inside strings are let through, although JSON asks for escapes.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from nllb_cli.errors import InputError
from nllb_cli.io.fields import (
    ERROR_FIELD,
    RAW_FIELD,
    OutputFields,
    flat_texts,
    kind,
    output_fields,
    row_languages,
)
from nllb_cli.io.rows import Block
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

_SPACE = " \t\r"
# Numbers are not needed: `len` is the cheapest function that takes any of them, however long.
_DECODER = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len, strict=False)
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_DECODER, "scan_once")  # noqa: B009
_quote: Callable[[str], str] = encode_basestring
_WORD = r"[A-Za-z_]\w*"
_NESTED = re.compile(rf"{_WORD}(\.{_WORD})+", re.ASCII)
_MAX_NAMES = 20
FROM_LIST = "`jq -c '.[]'` makes that of a list"


@dataclass(slots=True)
class _Odd:
    """The origin of a row that takes more than an insertion before its last brace."""

    raw: str
    end: str
    spans: dict[str, tuple[int, int]]
    """Where the values of its fields stand."""
    kept: tuple[str, ...] = ()
    """Fields of a bad row that must not be replaced."""
    is_object: bool = True


def read(blocks: Iterator[Block], options: IoOptions) -> Iterator[Record]:
    """Yield one record a line; its origin is the line itself."""
    fields, outputs = options.fields, output_fields(options)
    names = _all_names(outputs)
    has_languages = bool(options.source_field or options.target_field)
    blank = (None,) * len(fields)
    for block in blocks:
        for index, row in enumerate(block.rows, block.first):
            end = "" if block.is_open and index == block.first + len(block.rows) - 1 else "\n"
            source, targets = options.source_lang, options.target_langs
            if not row.strip(_SPACE):
                yield Record(index, blank, source, targets, row + end)
                continue
            try:
                values = _parse(row)
                texts = tuple([values[name] for name in fields])
                for text in texts:
                    if text is not None and type(text) is not str:
                        raise InputError(_wrong_type(values, fields))
                if has_languages:
                    source, targets = row_languages(values, options)
                origin: Any = row + end
                if not values.keys().isdisjoint(names):
                    origin = _odd(row, end, values, outputs)
                record = Record(index, texts, source, targets, origin)
            except (InputError, KeyError) as error:
                record = Record(index, blank, source, targets)
                record.origin, record.error = _bad(row, end, outputs), _reason(error)
            if block.errors and index in block.errors:
                record = Record(index, blank, source, targets)
                record.origin, record.error = _bad(row, end, outputs), block.errors[index]
            yield record


def _parse(row: str) -> dict[str, Any]:
    try:
        values, end = _scan(row, len(row) - len(row.lstrip(_SPACE)))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg.removesuffix(' at')} at {error.pos + 1}") from None
    except StopIteration as error:
        raise InputError(f"not JSON: no value at {error.value + 1}") from None
    except RecursionError:
        raise InputError("not JSON that can be read: nested too deeply") from None
    if not isinstance(values, dict):
        raise InputError(f"{kind(values)} where an object is needed")
    if row[end:].strip(_SPACE):
        raise InputError(f"not JSON: more text after the object at {end + 1}")
    return values


def is_object(row: str | None) -> bool:
    """Tell whether a line is a row of JSONL."""
    try:
        return row is not None and row.startswith("{") and bool(_parse(row))
    except InputError:
        return False


def _wrong_type(values: dict[str, Any], fields: tuple[str, ...]) -> str:
    name = next(name for name in fields if not isinstance(values[name], str | None))
    return f"field {name!r} holds {kind(values[name])}, not a text"


def _reason(error: InputError | KeyError) -> str:
    if isinstance(error, KeyError):
        return f"there is no field {error.args[0]!r}"
    return str(error)


def remedy(record: Record, options: IoOptions) -> str | None:
    """Say what to ask for instead, if it is no single row that lacks the fields to translate."""
    origin = record.origin
    if record.index or not isinstance(origin, _Odd):
        return None
    if not origin.is_object:
        return _remedy_of_json(origin.raw.strip(_SPACE))
    if not origin.spans:
        return None
    for name in options.fields:
        if name in origin.spans and origin.raw.startswith("{", origin.spans[name][0]):
            return f"nested fields are not read; {_lifted(f'{name}.NAME', origin)}"
        if name not in origin.spans and name.partition(".")[0] in origin.spans:
            return f"nested fields are not read; {_lifted(name, origin)}"
        if name not in origin.spans:
            there = ", ".join(map(repr, list(origin.spans)[:_MAX_NAMES]))
            return f"choose with --field among {there}"
    return None


def _remedy_of_json(first_line: str) -> str | None:
    """Say how JSON that is not an object a line becomes that."""
    if first_line.startswith("["):
        return FROM_LIST
    return "`jq -c .` puts each object on one line" if first_line == "{" else None


def _lifted(path: str, row: _Odd) -> str:
    """Say how a nested field becomes one that is read, under a name that the row has not."""
    path = path if _NESTED.fullmatch(path) else "a.b"
    name = path.rpartition(".")[2]
    if name in row.spans:
        name = path.replace(".", "_")
    return f"`jq -c '.{name} = .{path}'` puts it beside the others, for --field {name}"


def _all_names(outputs: OutputFields) -> list[str]:
    return [*outputs.names, *filter(None, [outputs.status]), ERROR_FIELD]


def _odd(row: str, end: str, values: dict[str, Any], outputs: OutputFields) -> _Odd:
    if not outputs.may_replace:
        name = next(name for name in _all_names(outputs) if name in values)
        raise InputError(f"field {name!r} is there already; choose a name with --output-field")
    return _Odd(row, end, _spans(row))


def _bad(row: str, end: str, outputs: OutputFields) -> _Odd:
    """Return the origin of a row that cannot be translated, but comes out all the same."""
    try:
        _parse(row)
        spans = _spans(row)
    except InputError:
        return _Odd(row, end, {}, is_object=False)
    kept = () if outputs.may_replace else tuple(n for n in outputs.names if n in spans)
    return _Odd(row, end, spans, kept=kept)


def _spans(row: str) -> dict[str, tuple[int, int]]:
    """Find where the values of an object stand in its text, which is known to be JSON."""
    spans: dict[str, tuple[int, int]] = {}
    position = row.index("{") + 1
    while True:
        position = _skip(row, position, ",")
        if row[position] == "}":
            return spans
        key, position = _scan(row, position)
        start = _skip(row, position, ":")
        _, position = _scan(row, start)
        spans[key] = (start, position)


def _skip(row: str, position: int, also: str) -> int:
    while row[position] in _SPACE or row[position] == also:
        position += 1
    return position


def write(options: IoOptions) -> Callable[[Translation], str]:
    """Return the function that makes the line of a translation."""
    outputs = output_fields(options)
    is_simple = len(outputs.names) == 1 and outputs.status is None
    loose, tight = f", {_quote(outputs.names[0])}: ", f",{_quote(outputs.names[0])}:"

    def line(translation: Translation) -> str:
        raw: Any = translation.record.origin
        if type(raw) is _Odd or translation.error is not None or not is_simple:
            return _full_line(translation, outputs)
        cut: int = raw.rfind("}")
        if cut < 0:
            return str(raw)
        text = translation.texts[0][0]
        value = "null" if text is None else _quote(text)
        name = loose if '": ' in raw else tight
        return f"{raw[:cut]}{name}{value}{raw[cut:]}"

    return line


def _full_line(translation: Translation, outputs: OutputFields) -> str:
    origin = translation.record.origin
    if not isinstance(origin, _Odd):
        origin = _Odd(origin, "", {}, is_object=True)
        if "}" not in origin.raw:
            return origin.raw
    new: dict[str, str | None] = dict(zip(outputs.names, flat_texts(translation), strict=True))
    if outputs.status is not None:
        new[outputs.status] = translation.status
    if translation.error is not None:
        new[ERROR_FIELD] = translation.error
    if not origin.is_object:
        new[RAW_FIELD] = origin.raw
        return f"{{{', '.join(f'{_quote(k)}: {_value(v)}' for k, v in new.items())}}}{origin.end}"
    raw = origin.raw
    for name in origin.kept:
        del new[name]
    old = [(*span, name) for name, span in origin.spans.items() if name in new]
    if ERROR_FIELD in origin.spans and not origin.kept:
        old.append((*origin.spans[ERROR_FIELD], ERROR_FIELD))
    for start, end, name in sorted(set(old), reverse=True):
        raw = raw[:start] + _value(new.pop(name, None)) + raw[end:]
    cut = raw.rindex("}")
    pattern = ", {}: {}" if '": ' in raw else ",{}:{}"
    added = "".join(pattern.format(_quote(k), _value(v)) for k, v in new.items())
    if raw[:cut].rstrip(_SPACE).endswith("{") and not raw[:cut].strip(_SPACE + "{"):
        added = added[1:].lstrip()
    return raw[:cut] + added + raw[cut:] + origin.end


def _value(text: str | None) -> str:
    return "null" if text is None else _quote(text)
