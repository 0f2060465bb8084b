"""Shards put together are the file that was never cut."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.formats import open_source
from nllb_cli.io.merge import merge
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, pump


def make(folder, suffix, num_rows):
    path = folder / f"in{suffix}"
    texts = [f"row {n}" for n in range(num_rows)]
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    elif suffix == ".csv":
        path.write_text("id,text" + "".join(f'\n{n},"a\n{n}"' for n in range(num_rows)))
    elif suffix == ".jsonl":
        path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    else:
        path.write_text("\n".join(texts))
    return path


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("num_rows", [0, 2, 37])
def test_shards_merged_are_the_whole(tmp_path, suffix, num_rows):
    source = make(tmp_path, suffix, num_rows)
    count = open_source(str(source), OPTIONS).count_rows()
    shards = []
    for shard in range(4):
        first, stop = count * shard // 4, count * (shard + 1) // 4
        shards.append(str(tmp_path / f"shard{shard}{suffix}"))
        pump(source, shards[-1], first_row=first, stop=stop)
    pump(source, tmp_path / f"whole{suffix}")
    target = tmp_path / f"out{suffix}"
    assert merge(shards, str(target)).num_rows == count
    if suffix == ".parquet":
        assert pq.read_table(target).equals(pq.read_table(tmp_path / "whole.parquet"))
    else:
        assert target.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        merge(shards, str(target))
    assert merge(shards[::-1], str(target), overwrite=True).num_rows == count


def test_a_missing_last_end_joins_no_rows(tmp_path):
    for name, content in [("a", b"1\n2"), ("b", b""), ("c", b"3\n"), ("d", b"4")]:
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in "abcd"]
    assert merge(paths, str(tmp_path / "out.txt.gz")).num_rows == 4
    assert gzip.decompress((tmp_path / "out.txt.gz").read_bytes()) == b"1\n2\n3\n4"


def test_shards_that_do_not_fit_are_refused_and_leave_nothing(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.csv").write_text("text,id\na,1\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["1"]}), tmp_path / "b.parquet")
    for suffix in (".csv", ".parquet"):
        paths = [str(tmp_path / f"{name}{suffix}") for name in "ab"]
        with pytest.raises(InputError, match="its columns are not those of"):
            merge(paths, str(tmp_path / f"out{suffix}"))
    with pytest.raises(UsageError, match="must have one format"):
        merge([str(tmp_path / "a.csv"), str(tmp_path / "a.parquet")], str(tmp_path / "out.csv"))
    with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
        merge([str(tmp_path / "none.csv")], str(tmp_path / "out.csv"))
    assert len(list(tmp_path.iterdir())) == 4


def test_no_quotes_reach_the_merge(tmp_path):
    (tmp_path / "a.tsv").write_text('text\n"a\n')
    bare = IoOptions("e", ("f",), quotes=False)
    assert [r.texts for r in open_source(str(tmp_path / "a.tsv"), bare).records()] == [('"a',)]
    shards = [str(tmp_path / "a.tsv")] * 2
    assert merge(shards, str(tmp_path / "out.tsv"), quotes=False).num_rows == 2
    assert (tmp_path / "out.tsv").read_text() == 'text\n"a\n"a\n'


def test_a_shard_is_never_the_target(tmp_path):
    shard, link = tmp_path / "a.txt", tmp_path / "b.txt"
    shard.write_text("one\n")
    link.hardlink_to(shard)
    for target in (shard, link):
        with pytest.raises(UsageError, match="this is a shard; choose another -o"):
            merge([str(shard)], str(target), overwrite=True)
    assert shard.read_text() == "one\n"


def write_lines(folder, **files):
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return [str(folder / name) for name in ("a.txt", "b.txt")]


def test_statuses_of_lines_are_merged_beside_the_rows(tmp_path):
    statuses = {"a_txt_status": "ok\nblank\n", "b_txt_status": "failed\tno\n"}
    shards = write_lines(tmp_path, a_txt="A\n\n", b_txt="", **statuses)
    with pytest.raises(InputError, match=r"a\.txt\.status: .* have 3 rows, their shards 2; mend"):
        merge(shards, str(tmp_path / "all.txt"))
    assert len(list(tmp_path.iterdir())) == 4
    (tmp_path / "b.txt").write_text("\n")
    merged = merge(shards, str(tmp_path / "all.txt"))
    assert (merged.num_rows, merged.lacking) == (3, None)
    assert (tmp_path / "all.txt").read_text() == "A\n\n\n"
    assert (tmp_path / "all.txt.status").read_text() == "ok\nblank\nfailed\tno\n"
    (tmp_path / "all.txt").unlink()
    with pytest.raises(UsageError, match=r"all\.txt\.status: exists"):
        merge(shards, str(tmp_path / "all.txt"))
    assert merge(shards, str(tmp_path / "all.txt"), overwrite=True).num_rows == 3
    assert len(list(tmp_path.iterdir())) == 6


def test_statuses_of_an_output_that_is_replaced_go_with_it(tmp_path):
    shards = write_lines(tmp_path, a_txt="A\n", b_txt="B\n", all_txt_status="ok\n")
    target, status = tmp_path / "all.txt", tmp_path / "all.txt.status"
    with pytest.raises(UsageError, match=r"all\.txt\.status: exists; .* --overwrite"):
        merge(shards, str(target))
    with pytest.raises(InputError):
        merge([*shards, str(tmp_path / "c.txt")], str(target), overwrite=True)
    assert status.read_text() == "ok\n"
    assert merge(shards, str(target), overwrite=True).removed == str(status)
    assert target.read_text() == "A\nB\n"
    assert not status.exists()
    assert merge(shards, str(target), overwrite=True).removed is None


def test_statuses_that_only_some_shards_have_are_left_out_and_said(tmp_path):
    shards = write_lines(tmp_path, a_txt="A\n", b_txt="B\n", a_txt_status="ok\n")
    merged = merge(shards, str(tmp_path / "all.txt"))
    assert (merged.num_rows, merged.lacking) == (2, f"{shards[1]}.status")
    assert not (tmp_path / "all.txt.status").exists()
