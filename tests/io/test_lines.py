"""Lines: only LF ends a row, and every end stays what it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import InputError
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, PROPERTY, pump, read_all, round_trip, translate

KEEP = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep")


@pytest.mark.parametrize(
    "inner", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e", "\r", "\0", "\ufeff"]
)
def test_only_lf_ends_a_row(tmp_path, inner):
    text = f"a{inner}b\nc\n"
    assert [r.texts for r in read_all(tmp_path, text.encode(), ".txt")] == [
        (f"a{inner}b",),
        ("c",),
    ]
    assert round_trip(tmp_path, text.encode(), ".txt") == text.upper().encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\n\n",
        b"a",
        b"a\n",
        b"a\r\nb\nc\r\n",
        b"a\r",
        b"\r\r\n",
        b"a\n\r",
        b" \t\n\n b",
    ],
)
def test_ends_and_blank_rows_stay(tmp_path, content):
    assert round_trip(tmp_path, content, ".txt") == content.upper()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", b"A\n\xef\xbb\xbfB\n"),
        (b"\xef\xbb\xbf", b""),
        (b"\xef\xbb\xbf\n", b"\n"),
        (b"\xef\xbb", b""),
    ],
)
def test_one_leading_byte_order_mark_is_dropped(tmp_path, content, expected):
    if content == b"\xef\xbb":
        with pytest.raises(InputError, match=r"in\.txt:1: invalid UTF-8"):
            round_trip(tmp_path, content, ".txt")
    else:
        assert round_trip(tmp_path, content, ".txt") == expected


def test_an_lf_in_a_translation_adds_no_row(tmp_path):
    output = round_trip(tmp_path, b"a\nb\n", ".txt", change=lambda text: text + "\n1\r\n2")
    assert output == b"a 1\r 2\nb 1\r 2\n"


def test_invalid_utf8_stops_with_its_place(tmp_path):
    with pytest.raises(InputError, match=r"in\.txt:2: .*, byte 0xe9 at 1; .*latin1 .*--on-error"):
        read_all(tmp_path, b"ok\n\xe9t\xe9\nok\n", ".txt")


def test_invalid_utf8_is_one_marked_row(tmp_path):
    records = read_all(tmp_path, b"ok\n\xe9t\xe9\nok\n", ".txt", KEEP)
    assert [r.error is None for r in records] == [True, False, True]
    assert [r.texts for r in records] == [("ok",), (None,), ("ok",)]
    assert round_trip(tmp_path, b"ok\n\xe9t\xe9\nok\n", ".txt", KEEP) == b"OK\n\nOK\n"


def test_a_file_for_each_target_and_one_for_the_status(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\n\xff\r\nb")
    options = IoOptions(
        "eng_Latn", ("fra_Latn", "deu_Latn"), on_error="keep", status_field="status"
    )
    pump(tmp_path / "in.txt", tmp_path / "out.{tgt}.txt", options)
    assert (tmp_path / "out.fra_Latn.txt").read_bytes() == b"A\n\r\nB"
    assert (tmp_path / "out.deu_Latn.txt").read_bytes() == b"A\n\r\nB"
    status = (tmp_path / "out.txt.status").read_text().split("\n")
    assert status == ["ok", "failed\tinvalid UTF-8, byte 0xff at 1", "ok", ""]
    assert len(list(tmp_path.iterdir())) == 4


def test_records_carry_languages_and_numbers(tmp_path):
    records = read_all(tmp_path, b"a\nb\n", ".txt")
    assert [r.index for r in records] == [0, 1]
    assert {(r.source_lang, r.target_langs) for r in records} == {("eng_Latn", ("fra_Latn",))}
    assert translate(records[0]).texts == (("A",),)


@PROPERTY
@given(rows=st.lists(st.text(st.characters(codec="utf-8"), max_size=20)), is_open=st.booleans())
def test_any_text_keeps_count_order_and_bytes(tmp_path_factory, rows, is_open):
    text = "\n".join(rows) + ("" if is_open else "\n")
    folder = tmp_path_factory.mktemp("lines")
    output = round_trip(folder, text.encode(), ".txt", OPTIONS, change=lambda t: t)
    assert output == text.encode().removeprefix(b"\xef\xbb\xbf")
