"""CSV and TSV: fields as the csv module sees them, bytes as they were."""

import csv
import io
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import InputError
from nllb_cli.io.delimited import Dialect
from nllb_cli.io.formats import open_source
from nllb_cli.io.rows import Block
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, PROPERTY, pump, read_all, round_trip

KEEP = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep")
BARE = IoOptions("eng_Latn", ("fra_Latn",), quotes=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text\na\n", "text,translation\na,A\n"),
        ("id,text\r\n1,a\r\n2,b", "id,text,translation\r\n1,a,A\r\n2,b,B"),
        ('text,n\n"a,b""c",1\n', 'text,n,translation\n"a,b""c",1,"A,B""C"\n'),
        ('n,text\n1,"a\nb\r\nc"\r\n', 'n,text,translation\n1,"a\nb\r\nc","A\nB\r\nC"\r\n'),
        ('text\na "b" c\n', 'text,translation\na "b" c,"A ""B"" C"\n'),
        ('text\n"a"b"c\n', 'text,translation\n"a"b"c,"AB""C"\n'),
        ("a,text\n\n,\n\r\n", "a,text,translation\n\n,,\n\r\n"),
        ("text,b,c\nx\n", "text,b,c,translation\nx,,,X\n"),
        ("\ufefftext\na\0\u2028\x85b\n", "text,translation\na\0\u2028\x85b,A\0\u2028\x85B\n"),
        ("text,b\na\rb,c\n", 'text,b,translation\na\rb,c,"A\rB"\n'),
        ("text", "text,translation"),
    ],
)
def test_other_bytes_stay(tmp_path, content, expected):
    assert round_trip(tmp_path, content.encode(), ".csv").decode() == expected


def test_tsv_and_no_quotes(tmp_path):
    content = b'id\ttext\n1\t"a, b"\n'
    assert round_trip(tmp_path, content, ".tsv") == (b'id\ttext\ttranslation\n1\t"a, b"\tA, B\n')
    content = b'id\ttext\n1\t"a\n2\tb"\n'
    output = round_trip(tmp_path, content, ".tsv", BARE, change=lambda text: text + "\t\n")
    assert output == b'id\ttext\ttranslation\n1\t"a\t"a  \n2\tb"\tb"  \n'


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"1", "1 fields where the header has 3"),
        (b"1,a,b,\xc3\xa9,5", "5 fields where the header has 3; beyond it: é,5"),
        (b"1,\xff,x", "invalid UTF-8, byte 0xff at 3"),
    ],
)
def test_a_bad_row_stops_or_is_marked(tmp_path, row, reason):
    content = b"id,text,x\n0,a,\n" + row + b"\n2,b,\n"
    with pytest.raises(InputError, match=rf"in\.csv:3: {reason}; .*--on-error keep"):
        read_all(tmp_path, content, ".csv")
    output = round_trip(tmp_path, content, ".csv", KEEP).decode()
    rows = list(csv.DictReader(io.StringIO(output, newline="")))
    assert [row["translation"] for row in rows] == ["A", "", "B"]
    assert [row["translation_error"] for row in rows] == ["", reason, ""]
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    assert all(None not in row for row in rows)


@pytest.mark.parametrize(
    ("content", "start", "note"),
    [
        (b"id,text,x\n0,a,\n\n1,b,2\n", 0, ""),
        (b"id,text,x\n0,a,\n1,b\n", 0, "in.csv:3: .*, empty ones are added (1 row)"),
        (b'id,text,x\n0,"a\n",\n1,b\n2,c\n3,d,', 0, "in.csv:4: .* (2 rows)"),
        (b"id,text,x\n0,a\n1,b\n2,c\n", 1, "in.csv:3: .* (2 rows)"),
        (b"id,text,x\n0\n1,a,b,c\n", 0, ""),  # bad rows are told as such
    ],
)
def test_rows_that_are_filled_up_are_told(tmp_path, content, start, note):
    (tmp_path / "in.csv").write_bytes(content)
    source = open_source(str(tmp_path / "in.csv"), KEEP)
    list(source.records(start))
    pattern = re.escape(note).replace(r"\.\*", ".*")
    assert re.fullmatch(f"{re.escape(str(tmp_path))}/{pattern}" if note else "", source.note())


def test_a_quote_that_is_never_closed_ends_the_run(tmp_path):
    content = b'id,text\n1,a\n2,"b\n3,c\n' + b"4,d\n" * 1000
    for options in (OPTIONS, KEEP):
        with pytest.raises(InputError, match=r"in\.csv:3: .* never closed; close it"):
            read_all(tmp_path, content, ".csv", options)


def test_a_place_is_the_line_of_the_file_on_which_a_row_begins(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b'text,"a\r\nb"\r\nx,1\n"1\n2\n\n3",2\n\n"4\n5",3\n\xff,4\n')
    source = open_source(str(path), KEEP)
    for _ in range(2):  # the file is read again
        indexes = [record.index for record in source.records()]
        assert [source.place(index) for index in indexes] == [
            f"{path}:{line}" for line in (3, 4, 8, 9, 11)
        ]
    with pytest.raises(InputError, match=rf"{path}:11: invalid UTF-8"):
        list(open_source(str(path), OPTIONS).records(start=3))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the first line must name the columns"),
        (b"\na\n", "the first line must name the columns"),
        (b"id,txt\n", "no column 'text' in the header; choose with --column among 'id', 'txt'"),
        (b"text,text\n", "more than one column 'text'"),
        (b"text,translation\n", "column 'translation' is there already"),
        (b"text,\xff\n", "the header has invalid UTF-8, .*`iconv -f latin1 -t utf-8`"),
        (b"id\ttext\n", "a tab parts the columns there; --format tsv reads it"),
        (b"id;text\n", "';' parts the columns there, which `python3 -c .*` changes to commas"),
    ],
)
def test_a_wrong_header_is_refused_at_once(tmp_path, content, reason):
    (tmp_path / "in.csv").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        open_source(str(tmp_path / "in.csv"), OPTIONS)


def test_several_columns_languages_and_status(tmp_path):
    options = IoOptions(
        "e", ("f",), fields=("b", "a"), target_field="to", status_field="state", on_error="keep"
    )
    content = b"a,to,b\nx,spa,y\nz,,\n"
    assert [r.target_langs for r in read_all(tmp_path, content, ".csv", options)] == [
        ("spa",),
        ("f",),
    ]
    assert round_trip(tmp_path, content, ".csv", options).decode() == (
        "a,to,b,b_translation,a_translation,state,translation_error\nx,spa,y,Y,X,ok,\nz,,,,Z,ok,\n"
    )


def test_a_named_column_is_replaced_in_its_place(tmp_path):
    options = IoOptions("e", ("f",), output_field="{field}", status_field="s")
    content = b'a,text,b\n"1" ,"x, y",2\n'
    assert round_trip(tmp_path, content, ".csv", options) == (b'a,text,b,s\n"1" ,"X, Y",2,ok\n')


def test_rows_are_counted_and_resumed_with_their_quotes(tmp_path):
    rows = "".join(f'{n},"line {n}\nmore ""{n}"" é"\n' for n in range(1500))
    (tmp_path / "in.csv").write_text("id,text\n" + rows)
    assert open_source(str(tmp_path / "in.csv"), OPTIONS).count_rows() == 1500
    pump(tmp_path / "in.csv", tmp_path / "whole.csv")
    part = tmp_path / "out.csv.part"
    pump(tmp_path / "in.csv", tmp_path / "out.csv", stop_after=1000)
    whole = part.read_bytes()
    for cut in [0, 5, 20, 21, 22, *range(len(whole) - 40, len(whole) + 1)]:
        part.write_bytes(whole[:cut])
        pump(tmp_path / "in.csv", tmp_path / "out.csv", stop_after=0, mode="resume")
        kept = part.read_bytes()
        assert whole.startswith(kept)
        assert len(kept) > cut - 80
    assert pump(tmp_path / "in.csv", tmp_path / "out.csv", mode="resume") == 500
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def is_closed(text):
    """Tell whether the csv module ends all rows of a text outside quotes."""
    probe = list(csv.reader(io.StringIO(text + "\nprobe", newline="")))
    return probe[-1:] == [["probe"]]


@PROPERTY
@given(
    text=st.text(st.sampled_from('",\nab ') | st.characters(exclude_characters="\r"), max_size=40),
    carriage=st.booleans(),
)
def test_fields_are_those_of_the_csv_module(text, carriage):
    text = text.replace("\n", "\r\n") if carriage else text
    dialect = Dialect(",", True)
    found = [Block(0, text.split("\n"), is_open=True)]
    if not is_closed(text):
        with pytest.raises(InputError, match="a quote is opened and never closed"):
            list(dialect.rows(iter(found), "x"))
        return
    rows = [
        [dialect.value(cell) for cell in dialect.cells(row.body)] if row.body else []
        for row in dialect.rows(iter(found), "x")
    ]
    expected = list(csv.reader(io.StringIO(text + "\n", newline="")))
    assert rows == expected


TEXTS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
)


@PROPERTY
@given(rows=TEXTS, suffix=st.sampled_from([".csv", ".tsv"]))
def test_any_row_keeps_count_order_and_bytes(tmp_path_factory, rows, suffix):
    dialect = "excel" if suffix == ".csv" else "excel-tab"
    buffer = io.StringIO(newline="")
    csv.writer(buffer, dialect, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    folder = tmp_path_factory.mktemp("csv")
    output = round_trip(folder, buffer.getvalue().encode(), suffix, change=lambda text: text)
    found = list(csv.reader(io.StringIO(output.decode(), newline=""), dialect))
    assert found[1:] == [[first, text, text] for first, text in rows]


def test_the_command_for_semicolons_makes_a_table_that_is_read(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('id;text\n1;"a; b, c"\n')
    with pytest.raises(InputError) as refused:
        open_source(str(path), OPTIONS)
    command = str(refused.value).split("`")[1].replace("python3", sys.executable)
    with path.open("rb") as file:
        done = subprocess.run(command, shell=True, stdin=file, capture_output=True, check=True)
    path.write_bytes(done.stdout)
    (record,) = open_source(str(path), OPTIONS).records()
    assert record.texts == ("a; b, c",)
