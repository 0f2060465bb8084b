"""Sinks of rows: what was taken is on disk, or the run says why not."""

import contextlib
import errno
import os
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io import partial
from nllb_cli.io.formats import open_sink, open_source
from nllb_cli.io.partial import PartialFile
from tests.io.pump import OPTIONS, pump, translate


@contextlib.contextmanager
def file_size_limit(num_bytes):
    """Let the kernel refuse to write more than so many bytes into a file."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet", ".txt.gz"])
def test_a_target_that_cannot_grow_is_one_line_and_resumable(tmp_path, suffix):
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    texts = [os.urandom(20).hex() for n in range(20_000)]
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), source)
    elif suffix == ".jsonl":
        source.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    else:
        source.write_text("".join(f"{text}\n" for text in ["text", *texts]))
        if suffix == ".txt.gz":
            source.rename(tmp_path / "plain.txt")
            pump(tmp_path / "plain.txt", source)
    pump(source, tmp_path / f"whole{suffix}")
    with (
        file_size_limit(400_000),
        pytest.raises(InputError, match=r"cannot be written \(.*\); [\d,]+ rows are safe") as error,
    ):
        pump(source, target)
    assert "\n" not in str(error.value)
    assert not target.exists()
    assert pump(source, target, mode="resume") <= 20_001
    assert target.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


def test_nothing_follows_a_torn_row(tmp_path, monkeypatch):
    file = PartialFile(tmp_path / "out.txt", "strict")
    write = os.write
    monkeypatch.setattr(partial.os, "write", lambda fd, data: write(fd, data[:3]) and crash())
    file.extend(["first\n"])
    with pytest.raises(KeyboardInterrupt):
        file.flush()
    monkeypatch.undo()
    file.extend(["second\n"])
    with pytest.raises(InputError, match="cannot go on after a row that is written in part"):
        file.flush()
    file.close()
    assert file.part.read_bytes() == b"fir"


def crash():
    raise KeyboardInterrupt


def test_stdout_that_is_full_is_one_line(tmp_path, monkeypatch):
    def write(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "in.txt").write_bytes(b"a\n")
    source = open_source(str(tmp_path / "in.txt"), OPTIONS)
    sink = open_sink("-", source, OPTIONS)
    for record in source.records():
        sink.write_all([translate(record)])
    monkeypatch.setattr(partial.os, "write", write)
    with pytest.raises(
        InputError, match=r"^stdout: cannot be written \(No space left on device\)$"
    ):
        sink.finish()


def test_a_closed_pipe_is_told_apart(tmp_path, monkeypatch):
    def write(fd, data):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    (tmp_path / "in.txt").write_bytes(b"a\n")
    source = open_source(str(tmp_path / "in.txt"), OPTIONS)
    sink = open_sink("-", source, OPTIONS)
    for record in source.records():
        sink.write_all([translate(record)])
    monkeypatch.setattr(partial.os, "write", write)
    with pytest.raises(BrokenPipeError):
        sink.flush()


def test_targets_that_cannot_be_are_refused_at_once(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        pump(tmp_path / "in.txt", tmp_path / "folder", mode="overwrite")
    with pytest.raises(InputError, match=r"x: cannot be written \(File name too long\)"):
        pump(tmp_path / "in.txt", tmp_path / ("x" * 252))
    (tmp_path / "out.txt.part.json").mkdir()
    with pytest.raises(InputError, match=r"json: cannot be read \(Is a directory\)"):
        pump(tmp_path / "in.txt", tmp_path / "out.txt")


def test_a_disk_that_fills_while_packing_keeps_the_rows(tmp_path, monkeypatch):
    def fail(source, target, suffix):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    with monkeypatch.context() as patch:
        patch.setattr(partial, "compress", fail)
        with pytest.raises(
            InputError, match=r"out\.txt\.xz: cannot be written .*; 2 rows are safe"
        ):
            pump(tmp_path / "in.txt", tmp_path / "out.txt.xz")
    assert (tmp_path / "out.txt.xz.part").read_bytes() == b"A\nB\n"
    assert pump(tmp_path / "in.txt", tmp_path / "out.txt.xz", mode="resume") == 0
    assert pump(tmp_path / "out.txt.xz", tmp_path / "out.txt") == 2
