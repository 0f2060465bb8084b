"""What a person is told when a run is not the one that is to be resumed."""

from dataclasses import asdict

import pytest

from nllb_cli import manifest
from nllb_cli.io.changes import _OPTIONS, changes, met
from nllb_cli.options import DecodeOptions, IoOptions
from nllb_cli.slices import Slice
from nllb_cli.text.segments import SplitRules
from tests.readme import commands

MODEL = {"config.json": "1", "model.safetensors": "2", "tokenizer.json": "3"}
MARK = {"size": 38, "mtime_ns": 5, "sample": "b5"}


def settings(io=IoOptions(), decode=DecodeOptions(), model=MODEL, rows=Slice(), **numbers):  # noqa: B008
    numbers = {"device": "cpu", "dtype": "float32", **asdict(SplitRules()), **numbers}
    made = {"slice": asdict(rows), "format": None}
    return {"input": MARK, "first_row": 0, **manifest.settings(model, io, decode, numbers, made)}


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (settings(), []),
        (settings(decode=DecodeOptions(2)), ["--beam was 4, now is 2"]),
        (settings(IoOptions("eng_Latn")), ["--src was not given, now is eng_Latn"]),
        (
            settings(IoOptions(target_langs=("fra_Latn", "deu_Latn"), fields=("a", "b"))),
            ["--tgt was not given, now is fra_Latn,deu_Latn", "--field was text, now is a,b"],
        ),
        (settings(rows=Slice(shard=(2, 3))), ["--shard was not given, now is 2/3"]),
        (
            settings(device="cuda", max_target_tokens=9, emoji="model"),
            [
                "--device was cpu, now is cuda",
                "--max-target-tokens was not given, now is 9",
                "--emoji was keep, now is model",
            ],
        ),
        (settings(model={**MODEL, "config.json": "9"}), ["--model was another, in config.json"]),
        (settings(model={}), ["--model was another, in config.json and 2 more"]),
        ({**settings(), "version": "9"}, [f"nllb was {settings()['version']}, now is 9"]),
        ({**settings(), "odd": {"n": 1}}, ["odd.n was absent, now is 1"]),
        (
            {**settings(), "input": {**MARK, "size": 40, "mtime_ns": 6, "sample": "b6"}},
            ["the input had 38 bytes, now has 40"],
        ),
        (
            {**settings(), "input": {**MARK, "mtime_ns": 6, "sample": "b6"}},
            ["the input has other bytes, though as many"],
        ),
        ({**settings(), "input": {**MARK, "mtime_ns": 6}}, []),
        ({**settings(), "input": {}}, ["the input was a file, now is no file"]),
    ],
)
def test_changes_are_told_in_options(new, told):
    assert changes(settings(), new) == told


def test_a_large_input_that_was_touched_is_told_with_the_way_to_say_that_it_is_the_same():
    old, new = ({"input": {**MARK, "size": 10**8, "mtime_ns": 10**10 + n}} for n in (7, 8))
    (told,) = changes(old, new)
    assert told.endswith("if it holds what it held, touch -d @10.000000007 INPUT says so")


FAIL, KEEP = (settings(IoOptions(on_error=choice)) for choice in ("fail", "keep"))
FAIL_CUT, KEEP_CUT = (
    settings(IoOptions(on_error=choice), too_long="cut") for choice in ("fail", "keep")
)


@pytest.mark.parametrize(
    ("old", "new", "statuses", "is_same"),
    [
        (FAIL, KEEP, None, True),
        (FAIL, FAIL_CUT, None, True),
        (FAIL, KEEP_CUT, None, True),
        (FAIL_CUT, KEEP_CUT, None, True),
        (KEEP, KEEP_CUT, None, False),  # long rows may be there, and are empty
        (KEEP, FAIL, None, False),
        (FAIL_CUT, FAIL, None, False),
        (KEEP, FAIL, {"ok": 3}, True),
        (KEEP, FAIL_CUT, {"ok": 3}, True),
        (KEEP, FAIL, {"ok": 3, "failed": 1}, False),
        (KEEP_CUT, FAIL, {"ok": 3, "cut": 1}, False),
        (KEEP_CUT, FAIL_CUT, {"ok": 3, "cut": 1}, True),
        (FAIL_CUT, FAIL, {"ok": 3}, True),
        ({**FAIL, "version": "9"}, KEEP, None, False),
    ],
)
def test_what_no_row_has_met_may_change(old, new, statuses, is_same):
    found = {"settings": old, **({} if statuses is None else {"statuses": statuses})}
    assert (changes(met(found, new, False), new) == []) == is_same
    has_more_columns = old["rows"]["on_error"] != new["rows"]["on_error"]
    assert (changes(met(found, new, True), new) == []) == (is_same and not has_more_columns)


def test_every_setting_has_a_name_and_every_name_is_an_option():
    known = {name for option in commands()["translate"].params for name in option.opts}
    assert set(_OPTIONS.values()) <= known
    other = settings(
        IoOptions("a", ("b",), "c", "d", ("e",), "f", "keep", "g", False),
        DecodeOptions(5, 1.5, "never"),
        {},
        Slice(1, 2, (3, 4)),
        **dict.fromkeys(["device", "dtype", *asdict(SplitRules())], "x"),
    )
    other |= {"input": {}, "first_row": 1, "version": "9"}
    other["rows"]["format"] = "csv"
    told = changes(settings(), other)
    assert len(told) == len(_OPTIONS) + 5
    assert [text for text in told if text.startswith(("rows.", "search.", "numbers."))] == []
