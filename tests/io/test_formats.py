"""Formats by suffix, sources and sinks, stdin and stdout."""

import os
import subprocess
import sys

import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.formats import format_of, open_sink, open_source
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, pump

TWO = IoOptions("eng_Latn", ("fra_Latn", "deu_Latn"))


@pytest.mark.parametrize(
    ("path", "wanted", "format"),
    [
        ("a.txt", None, "lines"),
        ("corpus.fr", None, "lines"),
        ("-", None, "lines"),
        ("-", "jsonl", "jsonl"),
        ("a.JSONL.gz", None, "jsonl"),
        ("a.ndjson", None, "jsonl"),
        ("a.parquet", None, "parquet"),
        ("a.json", "jsonl", "jsonl"),
        ("a.jsonl", "lines", "lines"),
    ],
)
def test_format_by_suffix_or_flag(path, wanted, format):
    assert format_of(path, wanted) == format


def test_unclear_formats_are_refused():
    with pytest.raises(UsageError, match="choose one of lines, jsonl, parquet"):
        format_of("a.txt", "xml")
    with pytest.raises(UsageError, match="--format jsonl"):
        format_of("a.json")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_both_ways(tmp_path, suffix):
    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    pump(tmp_path / "in.txt", tmp_path / f"up.txt{suffix}")
    assert pump(tmp_path / f"up.txt{suffix}", tmp_path / "low.txt", change=str.lower) == 2
    assert (tmp_path / "low.txt").read_bytes() == b"a\nb\n"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_range_keeps_row_numbers(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\nb\nc\nd\n")
    source = open_source(str(tmp_path / "in.txt"), OPTIONS)
    assert source.count_rows() == 4
    assert [(r.index, r.texts[0]) for r in source.records(1, 3)] == [(1, "b"), (2, "c")]
    assert list(source.records(2, 2)) == []
    assert list(source.records(9)) == []
    pump(tmp_path / "in.txt", tmp_path / "out.txt", first_row=1, stop=3)
    assert (tmp_path / "out.txt").read_bytes() == b"B\nC\n"


def test_the_output_has_the_format_of_the_input(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\n")
    with pytest.raises(UsageError, match="the output has its input's format, lines"):
        pump(tmp_path / "in.txt", tmp_path / "out.jsonl.gz")
    pump(tmp_path / "in.txt", tmp_path / "out.fr")


def test_several_targets_need_several_files(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\n")
    with pytest.raises(UsageError, match=r"put {tgt} into the name"):
        pump(tmp_path / "in.txt", tmp_path / "out.txt", TWO)
    with pytest.raises(UsageError, match=r"put {tgt} into the name"):
        open_sink(None, open_source(str(tmp_path / "in.txt"), TWO), TWO)


def test_pipes_are_not_resumed_nor_counted(tmp_path):
    source = open_source("-", OPTIONS)
    assert source.num_bytes is None
    with pytest.raises(UsageError, match="stdin cannot be read again"):
        open_sink(str(tmp_path / "out.txt"), source, OPTIONS, mode="resume")
    with pytest.raises(UsageError, match="stdout cannot be resumed"):
        open_sink("-", source, OPTIONS, mode="resume")
    with pytest.raises(UsageError, match="cannot be counted"):
        source.count_rows()


def test_a_missing_input_is_one_line(tmp_path):
    for name in ("none.txt", "none.parquet", "none.jsonl.zst"):
        with pytest.raises(InputError, match=rf"{name}: cannot be read \(No such file"):
            open_source(str(tmp_path / name), OPTIONS)


PIPE = """
from nllb_cli.io.formats import count_kept, open_sink, open_source
from nllb_cli.options import IoOptions
from nllb_cli.records import Translation

options = IoOptions("eng_Latn", ("fra_Latn",))
source = open_source("-", options)
sink = open_sink(None, source, options)
for record in source.records():
    sink.write_all([Translation(record, ((record.texts[0].upper(),),), ((None,),))])
    sink.flush()
sink.finish()
"""


def test_a_pipe_gives_each_row_at_once_whatever_the_locale():
    command = [sys.executable, "-c", PIPE]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
    ) as process:
        for row in ("a", "é", "😆"):
            process.stdin.write(f"{row}\n".encode())
            assert process.stdout.readline() == f"{row.upper()}\n".encode()
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0
