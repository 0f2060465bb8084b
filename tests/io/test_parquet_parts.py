"""Parts: closed ones count, others go."""

import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.parquet_parts import Parts


def make(folder, *sizes):
    parts = Parts(folder / "out.parquet", ["translation", "state"])
    start = parts.open()
    for size in sizes:
        parts.append([(str(start + n), None) for n in range(size)])
        start += size
    return parts


def test_rows_are_counted_and_read_in_any_slices(tmp_path):
    make(tmp_path, 3, 1, 5).close()
    parts = Parts(tmp_path / "out.parquet", ["translation", "state"])
    assert parts.open() == 9
    rows = parts.columns()
    taken = [rows.take(n)["translation"].to_pylist() for n in (0, 2, 3, 4)]
    assert taken == [[], ["0", "1"], ["2", "3", "4"], ["5", "6", "7", "8"]]
    assert rows.take(0)["translation"].num_chunks == 1


def test_a_torn_part_and_all_after_it_are_dropped(tmp_path):
    parts = make(tmp_path, 3, 1, 5)
    parts.close()
    torn = parts.folder / "000001.parquet"
    torn.write_bytes(torn.read_bytes()[:-3])
    (parts.folder / "000003.tmp").write_bytes(b"x")
    again = make(tmp_path)
    assert [path.name for path in again.folder.iterdir()] == ["000000.parquet"]
    assert again.columns().take(3)["translation"].to_pylist() == ["0", "1", "2"]


def test_one_writer_at_a_time(tmp_path):
    parts = make(tmp_path, 1)
    with pytest.raises(UsageError, match="another nllb is writing it"):
        make(tmp_path)
    parts.remove()
    assert not parts.folder.exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    folder = tmp_path / "out.parquet.parts"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match=r"thesis\.txt: not of nllb"):
        make(tmp_path)
    with pytest.raises(UsageError, match=r"thesis\.txt: not of nllb"):
        Parts(tmp_path / "out.parquet", ["translation"]).remove()
    assert (folder / "thesis.txt").exists()


def test_lone_surrogates_become_question_marks(tmp_path):
    parts = Parts(tmp_path / "out.parquet", ["translation"])
    parts.open()
    parts.append([("a\ud83d",), (None,), ("b",)])
    table = pq.read_table(parts.folder / "000000.parquet")
    assert table["translation"].to_pylist() == ["a?", None, "b"]


def test_a_part_that_is_damaged_later_is_named(tmp_path):
    parts = make(tmp_path, 2)
    (parts.folder / "000000.parquet").write_bytes(b"x" * 20)
    with pytest.raises(InputError, match=r"000000\.parquet: damaged"):
        parts.columns().take(1)
