"""Parquet: other columns, types and metadata stay, group by group."""

import datetime
import decimal
import os
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io import parquet, parquet_file
from nllb_cli.io.formats import open_source
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, PROPERTY, pump
from tests.io.test_parquet_file import damage_column

KEEP = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep")


def make(folder, table, **how):
    pq.write_table(table, folder / "in.parquet", **how)
    return folder / "in.parquet"


def run(folder, table, options=OPTIONS, **how):
    target = folder / "out.parquet"
    pump(make(folder, table, **how), target, options, mode="overwrite")
    return pq.ParquetFile(target)


def wide_table(num_rows):
    numbers = range(num_rows)
    texts = [None if n % 7 == 3 else f"row {n}" for n in numbers]
    when = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)
    columns = {
        "id": pa.array(numbers, pa.uint32()),
        "text": pa.array(texts),
        "price": pa.array([decimal.Decimal("1.10") + n for n in numbers], pa.decimal128(20, 2)),
        "when": pa.array([when] * num_rows, pa.timestamp("ns", "Europe/Paris")),
        "kind": pa.array([("x", "y", None)[n % 3] for n in numbers]).dictionary_encode(),
        "nested": pa.array(
            [{"a": [1, None, n], "b": {"c": None if n % 2 else "z"}} for n in numbers]
        ),
        "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int16())),
        "large": pa.array(["l"] * num_rows, pa.large_string()),
        "nothing": pa.nulls(num_rows),
        "nan": pa.array([float("nan")] * num_rows, pa.float32()),
        "blob": pa.array([b"\xff\0"] * num_rows, pa.large_binary()),
        "a.b": pa.array([True] * num_rows),
    }
    table = pa.table(columns)
    field = table.schema.field("id").with_metadata({"unit": "rows"})
    table = table.set_column(0, field, table.column(0))
    return table.replace_schema_metadata({"pandas": '{"index_columns": []}', "huggingface": "{}"})


def test_other_columns_types_and_metadata_stay(tmp_path):
    table = wide_table(100)
    output = run(tmp_path, table, row_group_size=37)
    result = output.read()
    assert result.column_names == [*table.column_names, "translation"]
    source = pq.read_table(tmp_path / "in.parquet")
    for name in table.column_names:
        if name != "nan":
            assert result.column(name).equals(source.column(name)), name
        assert result.schema.field(name).equals(source.schema.field(name), check_metadata=True)
    assert all(value != value for value in result.column("nan").to_pylist())
    assert result.schema.metadata == source.schema.metadata
    expected = [None if t is None else t.upper() for t in table.column("text").to_pylist()]
    assert result.column("translation").to_pylist() == expected
    groups = [output.metadata.row_group(g).num_rows for g in range(output.num_row_groups)]
    assert groups == [37, 37, 26]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
def test_every_text_type_is_read(tmp_path, kind):
    table = pa.table({"text": pa.array(["a", None, "", "a", "é"]).cast(kind)})
    output = run(tmp_path, table).read()
    assert output.column("translation").to_pylist() == ["A", None, "", "A", "É"]
    assert output.column("text").to_pylist() == ["a", None, "", "a", "é"]


def test_a_column_of_nulls_stays_null(tmp_path):
    assert run(tmp_path, pa.table({"text": pa.nulls(3)})).read().column(1).to_pylist() == [None] * 3


def test_no_rows_and_no_groups(tmp_path):
    output = run(tmp_path, pa.table({"text": pa.array([], pa.string())}))
    assert output.metadata.num_rows == 0
    assert output.schema_arrow.names == ["text", "translation"]


def test_big_groups_are_cut_and_columns_keep_their_compression(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "MAX_GROUP_ROWS", 1000)
    output = run(tmp_path, wide_table(2500), compression="gzip")
    groups = [output.metadata.row_group(g) for g in range(output.num_row_groups)]
    assert [group.num_rows for group in groups] == [1000, 1000, 500]
    columns = [groups[0].column(c) for c in range(groups[0].num_columns)]
    assert {column.compression for column in columns} == {"GZIP"}


def test_long_rows_make_smaller_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "MAX_GROUP_BYTES", 100_000)
    texts = [f"{n}" * 1000 for n in range(1000, 1100)]
    output = run(tmp_path, pa.table({"text": texts}))
    assert 10 < output.metadata.row_group(0).num_rows < 30
    assert output.read().column("translation").to_pylist() == texts


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (IoOptions(fields=("txt",)), "no column 'txt'; choose with --column among 'text'"),
        (
            IoOptions(fields=("id",)),
            "column 'id' holds int64, not text; choose with --column among 'text'",
        ),
        (IoOptions(target_field="nan"), "column 'nan' holds double, not text"),
        (IoOptions(fields=("twice",)), "more than one column 'twice'"),
    ],
)
def test_a_wrong_column_is_refused_at_once(tmp_path, options, reason):
    columns = {"id": [1], "text": ["a"], "nan": [float("nan")]}
    table = pa.table(columns).append_column("twice", pa.array(["a"]))
    make(tmp_path, table.append_column("twice", pa.array(["b"])))
    with pytest.raises(InputError, match=reason):
        open_source(str(tmp_path / "in.parquet"), options)


@pytest.mark.parametrize("column", ["doc", "doc.body"])
def test_of_a_nested_column_the_refusal_says_how_to_flatten_it(tmp_path, column):
    path = make(tmp_path, pa.table({"doc": [{"body": "a"}]}))
    options = IoOptions("eng_Latn", ("fra_Latn",), fields=(column,))
    with pytest.raises(InputError, match=r"nested columns .*flatten\(\), OUT.* columns doc\.… of"):
        open_source(str(path), options)
    pq.write_table(pq.read_table(path).flatten(), path)
    with closing(open_source(str(path), IoOptions(fields=("doc.body",)))) as source:
        assert [record.texts for record in source.records()] == [("a",)]


def test_where_no_column_holds_text_the_refusal_says_so(tmp_path):
    path = make(tmp_path, pa.table({"id": [1]}))
    with pytest.raises(InputError, match="no column 'text'; no column of it holds text"):
        open_source(str(path), IoOptions())


def test_a_column_that_is_there_is_replaced_only_by_name(tmp_path):
    table = pa.table({"translation": [7], "text": ["a"]})
    with pytest.raises(InputError, match="'translation' is there already"):
        run(tmp_path, table)
    output = run(tmp_path, table, IoOptions("e", ("f",), output_field="translation")).read()
    assert output.to_pydict() == {"translation": ["A"], "text": ["a"]}


def test_invalid_utf8_is_a_bad_row(tmp_path):
    raw = pa.array([b"ok", b"\xff", None, b"b"])
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 4, raw.buffers(), 1)})
    with pytest.raises(InputError, match=r"in\.parquet: row 2: invalid UTF-8; .*--on-error"):
        run(tmp_path, table)
    output = run(tmp_path, table, KEEP).read()
    assert output.column("translation").to_pylist() == ["OK", "", None, "B"]
    assert output.column("translation_error").to_pylist() == [None, "invalid UTF-8", None, None]


def test_languages_several_columns_and_status(tmp_path):
    table = pa.table({"a": ["x", "y"], "b": [None, "z"], "to": ["spa_Latn", None]})
    options = IoOptions(
        "eng_Latn", ("fra_Latn",), fields=("a", "b"), target_field="to", status_field="state"
    )
    output = run(tmp_path, table, options).read().to_pydict()
    assert output["a_translation"] == ["X", "Y"]
    assert output["b_translation"] == [None, "Z"]
    assert output["state"] == ["ok", "ok"]
    source = open_source(str(tmp_path / "in.parquet"), options)
    assert [r.target_langs for r in source.records()] == [("spa_Latn",), ("fra_Latn",)]


@PROPERTY
@given(
    rows=st.lists(st.none() | st.text(st.characters(codec="utf-8"))),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    group=st.integers(1, 5),
)
def test_any_text_keeps_count_and_order(tmp_path_factory, rows, kind, group):
    folder = tmp_path_factory.mktemp("parquet")
    table = pa.table({"text": pa.array(rows, pa.string()).cast(kind)})
    source = make(folder, table, row_group_size=group)
    pump(source, folder / "out.parquet", change=lambda text: text)
    output = pq.read_table(folder / "out.parquet")
    assert output.column("translation").to_pylist() == rows
    assert output.drop_columns("translation").equals(pq.read_table(source), check_metadata=True)


@pytest.mark.parametrize(("start", "stop"), [(0, None), (5, 6), (36, 38), (37, 80), (99, None)])
def test_any_range_of_rows(tmp_path, start, stop):
    source = open_source(str(make(tmp_path, wide_table(100), row_group_size=37)), OPTIONS)
    records = list(source.records(start, stop))
    assert [r.index for r in records] == list(range(100))[start:stop]
    assert all(r.texts == (None if r.index % 7 == 3 else f"row {r.index}",) for r in records)


def test_parquet_cannot_be_piped(tmp_path):
    with pytest.raises(UsageError, match="^stdin: Parquet .* save it to a file"):
        open_source("-", OPTIONS, "parquet")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe: Parquet cannot come from a pipe; give"):
        open_source(str(tmp_path / "pipe"), OPTIONS, "parquet")
    with pytest.raises(UsageError, match="unpack"):
        open_source("x.parquet.gz", OPTIONS)


def test_an_input_that_changed_is_not_joined_and_one_that_was_touched_is(tmp_path, monkeypatch):
    source = make(tmp_path, wide_table(10))
    with monkeypatch.context() as patch:
        touched = parquet.ParquetSink.finish
        patch.setattr(parquet.ParquetSink, "finish", lambda sink: (os.utime(source), touched(sink)))
        assert pump(source, tmp_path / "touched.parquet") == 10
    finish = parquet.ParquetSink.finish

    def late(sink):
        make(tmp_path, wide_table(11))
        finish(sink)

    monkeypatch.setattr(parquet.ParquetSink, "finish", late)
    with pytest.raises(InputError, match="changed while it was translated"):
        pump(source, tmp_path / "out.parquet")


def test_damage_in_a_column_that_is_not_translated_is_named_and_nothing_looks_complete(tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pa.table({"id": range(900), "text": ["a"] * 900, "note": [f"n{n}" for n in range(900)]})
    pq.write_table(table, source, row_group_size=300)
    damage_column(source, 1, "note")
    with pytest.raises(InputError, match=r"row group 2, column 'note': .*fetch or write") as error:
        pump(source, target)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(f"; all 900 translations are kept in {target}.parts")
    assert sorted(os.listdir(tmp_path)) == [
        "in.parquet", "out.parquet.part.json", "out.parquet.parts"
    ]  # fmt: skip
    with closing(open_source(str(source), OPTIONS)) as rows:
        assert rows.count_rows() == len(list(rows.records())) == 900
        with pytest.raises(InputError, match="in.parquet: .*row group 2, column 'note'"):
            rows.verify()


def test_damage_in_the_translated_column_stops_at_its_rows(tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"text": ["a"] * 900, "n": range(900)}), source, row_group_size=300)
    damage_column(source, 2, "text")
    with pytest.raises(InputError, match="row group 3, column 'text'"):
        pump(source, target)
    assert (
        pq.read_metadata(target.with_name("out.parquet.parts") / "000000.parquet").num_rows == 600
    )
