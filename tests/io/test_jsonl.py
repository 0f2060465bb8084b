"""JSONL: whatever is not the translation comes out as the bytes it was."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import InputError
from nllb_cli.io import jsonl
from nllb_cli.io.formats import open_source
from nllb_cli.options import IoOptions
from tests.io.pump import PROPERTY, pump, read_all, round_trip

KEEP = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('{"text": "a"}', '{"text": "a", "translation": "A"}'),
        ('{"text":"a","n":1.0}', '{"text":"a","n":1.0,"translation":"A"}'),
        (
            '{"z": 1e400, "text": "a", "b": 12345678901234567890123, "z": -0.0, "n": NaN}',
            '{"z": 1e400, "text": "a", "b": 12345678901234567890123, "z": -0.0, "n": NaN,'
            ' "translation": "A"}',
        ),
        ('  {"text" : "\\u00e9" }\t\r', '  {"text" : "\\u00e9" ,"translation":"É"}\t\r'),
        ('{"text": null, "o": {"}": [1]}}', '{"text": null, "o": {"}": [1]}, "translation": null}'),
        ('{"text": ""}', '{"text": "", "translation": ""}'),
        ('{"text": "no", "text": "\\ud83d\\n"}', None),
    ],
)
def test_other_bytes_stay(tmp_path, row, expected):
    if expected is None:
        expected = row[:-1] + ', "translation": "\\ud83d\\n"}'
    assert round_trip(tmp_path, f"{row}\n{row}".encode(), ".jsonl") == (
        f"{expected}\n{expected}".encode()
    )


def test_blank_lines_pass(tmp_path):
    content = b'\n{"text":"a"}\n \t\r\n\n'
    expected = b'\n{"text":"a","translation":"A"}\n \t\r\n\n'
    assert round_trip(tmp_path, content, ".jsonl") == expected


def test_a_huge_number_costs_nothing(tmp_path):
    row = '{"n": ' + "9" * 50_000 + ', "text": "a"}'
    assert round_trip(tmp_path, row.encode(), ".jsonl").startswith(row[:-1].encode())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON"),
        ('{"text": "a"', "not JSON"),
        ('{"text": "a"} {"text": "b"}', "more text after the object"),
        ("[" * 100_000, "nested too deeply"),
        ('["a"]', "a list where an object is needed"),
        ("null", "null where an object is needed"),
        ("x", "not JSON: no value at 1"),
        ('{"txt": "a"}', "no field 'text'"),
        ('{"text": 1}', "'text' holds a number, not a text"),
        ('{"text": true}', "'text' holds true or false, not a text"),
        ('{"text": ["a"]}', "'text' holds a list, not a text"),
        ('{"text": {}}', "'text' holds an object, not a text"),
        ('{"text": "a", "translation": "b"}', "'translation' is there already"),
        (b'{"text": "\xff"}', "invalid UTF-8, byte 0xff at 11"),
    ],
)
def test_a_bad_row_stops_or_is_marked(tmp_path, row, reason):
    raw = row if isinstance(row, bytes) else row.encode()
    content = b'{"text": "a"}\n' + raw + b'\n{"text": "b"}\n'
    with pytest.raises(InputError, match=r"in\.jsonl:2: .*") as error:
        read_all(tmp_path, content, ".jsonl")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    first, bad, last = round_trip(tmp_path, content, ".jsonl", KEEP).decode().splitlines()
    assert json.loads(first)["translation"] == "A"
    assert json.loads(last)["translation"] == "B"
    if "already" in reason:
        assert json.loads(bad)["translation"] == "b"
    else:
        assert json.loads(bad)["translation"] == ""
    assert reason in json.loads(bad)["translation_error"]


def test_a_row_that_is_no_object_keeps_its_text(tmp_path):
    output = json.loads(round_trip(tmp_path, b"[1", ".jsonl", KEEP))
    assert output["raw"] == "[1"
    empty = json.loads(round_trip(tmp_path, b"{ }", ".jsonl", KEEP))
    assert sorted(empty) == ["translation", "translation_error"]


def test_several_fields_and_targets(tmp_path):
    options = IoOptions(
        "eng_Latn", ("fra_Latn", "deu_Latn"), fields=("title", "body"), status_field="state"
    )
    row = b'{"body": "b", "title": null}'
    output = round_trip(tmp_path, row, ".jsonl", options)
    assert json.loads(output) == {
        "body": "b",
        "title": None,
        "title_translation_fra_Latn": None,
        "body_translation_fra_Latn": "B",
        "title_translation_deu_Latn": None,
        "body_translation_deu_Latn": "B",
        "state": "ok",
    }
    assert output.startswith(row[:-1])


def test_a_named_field_is_replaced_in_its_place(tmp_path):
    options = IoOptions("eng_Latn", ("fra_Latn",), output_field="{field}")
    content = b'{"a": [1 , 2], "text" : "x", "b": {"text": 1}}\n'
    expected = b'{"a": [1 , 2], "text" : "X", "b": {"text": 1}}\n'
    assert round_trip(tmp_path, content, ".jsonl", options) == expected


def test_rows_name_their_languages(tmp_path):
    options = IoOptions("eng_Latn", ("fra_Latn",), source_field="from", target_field="to")
    content = b'{"text": "a", "from": "deu_Latn", "to": "spa_Latn"}\n{"text": "a", "to": null}\n'
    records = read_all(tmp_path, content, ".jsonl", options)
    assert [(r.source_lang, r.target_langs) for r in records] == [
        ("deu_Latn", ("spa_Latn",)),
        ("eng_Latn", ("fra_Latn",)),
    ]
    with pytest.raises(InputError, match=r"field 'to' holds a number"):
        read_all(tmp_path, b'{"text": "a", "to": 3}', ".jsonl", options)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ROWS = st.fixed_dictionaries({"text": st.none() | st.text(st.characters())}, optional={"x": JSON})


@PROPERTY
@given(rows=st.lists(ROWS), ascii=st.booleans(), tight=st.booleans())
def test_any_row_keeps_count_order_and_bytes(tmp_path_factory, rows, ascii, tight):
    separators = (",", ":") if tight else (", ", ": ")
    lines = [json.dumps(row, ensure_ascii=ascii, separators=separators) for row in rows]
    content = "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")
    folder = tmp_path_factory.mktemp("jsonl")
    output = round_trip(folder, content, ".jsonl", change=lambda text: text).split(b"\n")[:-1]
    assert len(output) == len(rows)
    for raw, line, row in zip(output, content.split(b"\n"), rows, strict=False):
        assert raw.startswith(line[:-1])
        assert json.loads(raw)["translation"] == row["text"]


def test_a_pumped_file_is_complete(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "a"}\n' * 10_000)
    assert pump(tmp_path / "in.jsonl", tmp_path / "out.jsonl") == 10_000
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"text": "a", "translation": "A"}\n' * 10_000


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("text", "there is no field 'text'; choose with --field among 'id', 'body', 'doc'"),
        (
            "doc.body.en",
            "there is no field 'doc.body.en'; nested fields are not read;"
            " `jq -c '.en = .doc.body.en'` puts it beside the others, for --field en",
        ),
        (
            "doc.body",
            "there is no field 'doc.body'; nested fields are not read;"
            " `jq -c '.doc_body = .doc.body'` puts it beside the others, for --field doc_body",
        ),
        (
            "doc",
            "field 'doc' holds an object, not a text; nested fields are not read;"
            " `jq -c '.NAME = .doc.NAME'` puts it beside the others, for --field NAME",
        ),
        ("id", "field 'id' holds a number, not a text; mend the row, or go on past .*"),
    ],
)
def test_a_field_that_the_first_row_lacks_is_one_to_choose_anew(tmp_path, field, told):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 1, "body": "a", "doc": {"body": {"en": "b"}}}\n')
    source = open_source(str(path), IoOptions("eng_Latn", ("fra_Latn",), fields=(field,)))
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:1: {told}$"):
        list(source.records())


def test_a_field_that_a_later_row_lacks_is_a_bad_row(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n{"id": 1}\n')
    with pytest.raises(InputError, match="in.jsonl:2: there is no field 'text'; mend the row"):
        list(open_source(str(path), IoOptions("eng_Latn", ("fra_Latn",))).records())


def test_a_row_is_told_from_a_line():
    assert jsonl.is_object('{"text": "a"}\r')
    assert not any(map(jsonl.is_object, (None, "", "{}", "{a}", '"text"', '[{"text": "a"}]')))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('[{"text": "a"}]\n', r"a list where an object is needed; `jq -c '\.\[\]'` makes that"),
        ('[\n  {"text": "a"}\n]\n', r"not JSON: .*; `jq -c '\.\[\]'` makes that"),
        ('{\n  "text": "a"\n}\n', r"not JSON: .*; `jq -c \.` puts each object on one line"),
        ("text\n", "not JSON: .*; mend the row"),
    ],
)
def test_json_that_is_no_object_a_line_is_refused_with_what_makes_it_so(tmp_path, content, told):
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=told):
        list(open_source(str(path), IoOptions("eng_Latn", ("fra_Latn",))).records())
