"""Batches of rows; damage is named by row group and column."""

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError
from nllb_cli.io.parquet_file import ParquetFile


def damage_column(path, group, name):
    """Overwrite the pages of a column of a row group, and leave the metadata as it is."""
    found = pq.read_metadata(path).row_group(group)
    (column,) = (
        column
        for column in map(found.column, range(found.num_columns))
        if column.path_in_schema == name
    )
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)


@pytest.fixture
def path(tmp_path):
    columns = {
        "a": range(900),
        "b": [f"b{n}" for n in range(900)],
        "c": [{"d": n} for n in range(900)],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=300)
    return tmp_path / "x.parquet"


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 1), (299, 301), (650, 2000), (5, 5)])
def test_batches_are_the_rows_asked_for_and_end_with_their_group(path, start, stop):
    with closing(ParquetFile(str(path))) as file:
        batches = list(file.batches(start, stop, ["a"], 100))
    assert [n for batch in batches for n in batch["a"].to_pylist()] == list(range(900))[start:stop]
    for batch in batches:
        first, last = batch["a"][0].as_py(), batch["a"][-1].as_py()
        assert first // 300 == last // 300


@pytest.mark.parametrize(("group", "column"), [(0, "b"), (1, "a"), (2, "c.d")])
def test_damage_is_named_and_the_rows_before_it_come_out(path, group, column):
    with closing(ParquetFile(str(path))) as file:
        damage_column(path, group, column)
        batches = file.batches(0, None, None, 100)
        assert sum(next(batches).num_rows for _ in range(3 * group)) == 300 * group
        name = column.split(".")[0]
        pattern = rf"x\.parquet: .*row group {group + 1}, column '{name}': [^\n]*; fetch or write"
        with pytest.raises(InputError, match=pattern):
            next(batches)
