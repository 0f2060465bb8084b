"""Names of new fields, and languages by row."""

from dataclasses import replace

import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.fields import flat_texts, kind, output_fields, row_languages
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

TWO = ("fra_Latn", "deu_Latn")


@pytest.mark.parametrize(
    ("fields", "targets", "pattern", "names"),
    [
        (("text",), ("fra_Latn",), None, ["translation"]),
        (("text",), (), None, ["translation"]),
        (("a", "b"), ("fra_Latn",), None, ["a_translation", "b_translation"]),
        (("text",), TWO, None, ["translation_fra_Latn", "translation_deu_Latn"]),
        (("text",), TWO, "{field}.{tgt}", ["text.fra_Latn", "text.deu_Latn"]),
        (("text",), TWO, "fr,de", ["fr", "de"]),
        (("a", "b"), ("fra_Latn",), "x,y", ["x", "y"]),
        (("text",), ("fra_Latn",), "a,b", ["a,b"]),
        (
            ("a", "b"),
            TWO,
            None,
            [
                "a_translation_fra_Latn",
                "b_translation_fra_Latn",
                "a_translation_deu_Latn",
                "b_translation_deu_Latn",
            ],
        ),
    ],
)
def test_names(fields, targets, pattern, names):
    outputs = output_fields(IoOptions("e", targets, fields=fields, output_field=pattern))
    assert list(outputs.names) == names
    assert outputs.may_replace == (pattern is not None)


@pytest.mark.parametrize("pattern", ["out", "{field}", "a,b,c", "a,a", "a,"])
def test_names_that_do_not_suffice_are_refused(pattern):
    with pytest.raises(UsageError, match="2 different names are needed"):
        output_fields(IoOptions("e", TWO, output_field=pattern))


def test_status_needs_its_own_name():
    with pytest.raises(UsageError, match="--status translation"):
        output_fields(IoOptions("e", ("f",), status_field="translation"))
    with pytest.raises(UsageError, match="--status-field text: that field is read"):
        output_fields(IoOptions("e", ("f",), status_field="text"))


@pytest.mark.parametrize("pattern", ["{fild}", "{field}_{lang}", "out{}"])
def test_placeholders_that_do_not_exist_are_refused_with_those_that_do(pattern):
    with pytest.raises(UsageError, match=r"\} is not filled in; \{field\} and \{tgt\} are"):
        output_fields(IoOptions("e", ("f",), output_field=pattern))


def test_a_field_that_is_read_is_replaced_under_its_placeholder_only():
    options = IoOptions("e", ("f",), fields=("a", "b"), source_field="s", output_field="{field}")
    assert output_fields(options).names == ("a", "b")
    for pattern, lost in (("a,c", "a"), ("c,b", "b"), ("s,c", "s")):
        with pytest.raises(UsageError, match=rf"'{lost}' is read .* or \{{field\}}"):
            output_fields(replace(options, output_field=pattern))


def test_languages_fall_back_or_are_missed():
    options = IoOptions("eng_Latn", ("fra_Latn",), source_field="s", target_field="t")
    assert row_languages({"s": "a", "t": "b"}, options) == ("a", ("b",))
    assert row_languages({"s": "", "t": None}, options) == ("eng_Latn", ("fra_Latn",))
    with pytest.raises(InputError, match="'t' holds a list, not a language code"):
        row_languages({"t": []}, options)
    bare = IoOptions(source_field="s", target_field="t")
    with pytest.raises(InputError, match="'s' names no language and there is no --src"):
        row_languages({"t": "b"}, bare)


def test_kinds():
    values = [None, True, 1, 1.5, "s", [], {}]
    assert [kind(value) for value in values] == [
        "null",
        "true or false",
        "a number",
        "a number",
        "a string",
        "a list",
        "an object",
    ]


def test_a_failed_text_is_empty_and_a_null_is_not():
    record = Record(0, (None, "a"), "e", ("f",))
    scores = ((None, None),)
    assert flat_texts(Translation(record, ((None, "A"),), scores)) == [None, "A"]
    assert flat_texts(Translation(record, ((None, None),), scores, "failed", "why")) == ["", ""]
