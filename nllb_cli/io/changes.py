"""What differs between two runs, in the words of the command line."""

from collections.abc import Mapping, Sequence
from typing import Any

from nllb_cli.io.sidecar import Settings, is_same_content

_ABSENT = "absent"
_UNCOUNTED = {"failed": 1, "cut": 1}
"""What rows may be whose statuses nobody has counted."""
_MARK = ("size", "mtime_ns", "sample")
_MODEL = "model."
_OPTIONS = {
    "rows.source_lang": "--src",
    "rows.target_langs": "--tgt",
    "rows.source_field": "--src-field",
    "rows.target_field": "--tgt-field",
    "rows.fields": "--field",
    "rows.output_field": "--output-field",
    "rows.on_error": "--on-error",
    "rows.status_field": "--status-field",
    "rows.format": "--format",
    "rows.slice.skip": "--skip",
    "rows.slice.limit": "--limit",
    "rows.slice.shard": "--shard",
    "search.beam_size": "--beam",
    "search.length_penalty": "--length-penalty",
    "search.early_stopping": "--early-stopping",
    "numbers.device": "--device",
    "numbers.dtype": "--dtype",
    "numbers.max_source_tokens": "--max-source-tokens",
    "numbers.max_target_tokens": "--max-target-tokens",
    "numbers.too_long": "--too-long",
    "numbers.normalize": "--normalize",
    "numbers.emoji": "--emoji",
}
_NAMES = {
    **_OPTIONS,
    "version": "nllb",
    "first_row": "the number of the first row",
    "rows.quotes": "the use of quotes",
    "input": "the input",
    "input.input": "the input",
    "input.output": "the output",
}
"""Settings by their path; what is missing here goes by its path."""


def changes(old: Settings, new: Settings) -> list[str]:
    """Say what differs between two runs, one text each, as `--beam was 4, now is 5`."""
    before, after = _flat(old), _flat(new)
    names = [
        name
        for name in {**before, **after}
        if before.get(name, _ABSENT) != after.get(name, _ABSENT)
    ]
    texts = _of_input(before, after)
    for name in names:
        if name.removeprefix("input.") not in _MARK and not name.startswith(_MODEL):
            was, now = (_value(name, found.get(name, _ABSENT)) for found in (before, after))
            texts.append(f"{_NAMES.get(name, name)} was {was}, now is {now}")
    return texts + _of_model([name for name in names if name.startswith(_MODEL)])


def met(found: Settings, new: Settings, has_error_column: bool) -> Settings:
    """Return the settings of a run, with such of the new as none of its rows would have met.

    What becomes of a bad row or of a source over the limit may change while there is none: before
    the first of them --on-error fail ends a run, and of others the statuses tell. Where each row
    has a column for its error, --on-error says more than that.

    Args:
        found: the settings of the earlier run, and the statuses of its rows if they were counted.
        new: the settings of this run.
        has_error_column: whether all rows of the output are others under another --on-error.
    """
    old: dict[str, Any] = {**found.get("settings", {})}
    if not {"rows", "numbers"} <= old.keys() & new.keys():
        return old
    statuses = found.get("statuses", _UNCOUNTED)
    has_no_failed = not statuses.get("failed")
    has_no_bad = old["rows"].get("on_error") == "fail" or has_no_failed
    if has_no_bad and not has_error_column:
        old["rows"] = {**old["rows"], "on_error": new["rows"]["on_error"]}
    has_no_cut = has_no_failed and not statuses.get("cut")
    if has_no_bad if old["numbers"].get("too_long") == "error" else has_no_cut:
        old["numbers"] = {**old["numbers"], "too_long": new["numbers"]["too_long"]}
    return old


def _of_input(before: Settings, after: Settings) -> list[str]:
    was, now = (
        {name: found[f"input.{name}"] for name in _MARK if f"input.{name}" in found}
        for found in (before, after)
    )
    if was == now:
        return []
    if len(was) < len(_MARK) or len(now) < len(_MARK):
        kinds = ["a file" if mark else "no file" for mark in (was, now)]
        return [f"the input was {kinds[0]}, now is {kinds[1]}"]
    if is_same_content(was, now):
        return []
    if was["size"] != now["size"]:
        return [f"the input had {was['size']} bytes, now has {now['size']}"]
    if was["sample"] != now["sample"]:
        return ["the input has other bytes, though as many"]
    seconds, rest = divmod(was["mtime_ns"], 10**9)
    return [
        "the input was written to since; if it holds what it held, "
        f"touch -d @{seconds}.{rest:09} INPUT says so"
    ]


def _of_model(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return [f"--model was another, in {names[0].removeprefix(_MODEL)}{more}"]


def _value(name: str, value: Any) -> str:
    if value is None or value == "" or value == []:
        return "not given"
    if isinstance(value, list):
        return ("/" if name == "rows.slice.shard" else ",").join(map(str, value))
    return str(value)


def _flat(settings: Settings, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
