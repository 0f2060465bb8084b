"""Compressed streams both ways, whole and damaged."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import shutil
import subprocess

import pyarrow as pa
import pytest

from nllb_cli.errors import InputError
from nllb_cli.io import compression
from nllb_cli.io.compression import (
    SUFFIXES,
    compress,
    decompress,
    suffix_of,
    with_target,
    without_suffix,
)

TEXT = b"".join(b"row %d %d\n" % (n, n * n % 977) for n in range(60_000))
TOOLS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


def unpack(data, suffix):
    return b"".join(decompress(io.BytesIO(data).read, suffix, "x" + suffix))


def pack(data, suffix):
    target = io.BytesIO()
    compress(io.BytesIO(data), target, suffix)
    return target.getvalue()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_there_and_back(suffix):
    packed = pack(TEXT, suffix)
    assert len(packed) < len(TEXT) / 2
    assert unpack(packed, suffix) == TEXT
    assert pack(TEXT, suffix) == packed
    assert unpack(pack(b"", suffix), suffix) == b""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_of_other_writers_are_read_one_after_the_other(suffix):
    packed = PACK[suffix](TEXT[:1000]) + PACK[suffix](b"") + PACK[suffix](TEXT[1000:])
    assert unpack(packed, suffix) == TEXT


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_usual_tool_reads_ours(suffix):
    if shutil.which(TOOLS[suffix]) is None:
        pytest.skip(f"no {TOOLS[suffix]} here")
    tool = [TOOLS[suffix], "-dc"]
    assert subprocess.run(tool, input=pack(TEXT, suffix), capture_output=True).stdout == TEXT


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_chunks_are_bounded(suffix, monkeypatch):
    monkeypatch.setattr(compression, "CHUNK_BYTES", 1000)
    packed = pack(bytes(1_000_000), suffix)
    chunks = list(decompress(io.BytesIO(packed).read, suffix, "x"))
    assert max(map(len, chunks)) <= 1000
    assert b"".join(chunks) == bytes(1_000_000)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damage_is_one_line(suffix):
    packed = PACK[suffix](TEXT[:100_000])
    chance = random.Random(7)
    broken = [packed[:-1], packed[: len(packed) // 2], packed[:3], b"plain text\n", packed + b"x"]
    for _ in range(30):
        flipped = bytearray(packed)
        flipped[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        broken.append(bytes(flipped))
    found = []
    for data in broken:
        with contextlib.suppress(InputError):
            unpack(data, suffix)
            continue
        with pytest.raises(InputError, match=rf"^x{suffix}: damaged or not a {suffix} file .*$"):
            unpack(data, suffix)
        found.append(data)
    # A zstd frame may come without a checksum, and then some flips cannot be seen.
    assert broken[:5] == found[:5]
    assert len(found) > 10


def test_zeros_after_the_end_are_padding():
    assert unpack(gzip.compress(b"a\n") + bytes(512), ".gz") == b"a\n"


def test_suffixes():
    assert suffix_of("a.JSONL.GZ") == ".gz"
    assert without_suffix("dir.gz/a.txt.zst") == "dir.gz/a.txt"
    assert without_suffix("a.txt") == "a.txt"
    with pytest.raises(InputError, match=r"\.zip files are not read"):
        suffix_of("a.zip")


@pytest.mark.parametrize(
    ("path", "named"),
    [("out.txt", "out.{tgt}.txt"), ("a.d/out", "a.d/out.{tgt}"), ("x.txt.gz", "x.{tgt}.txt.gz")],
)
def test_a_target_stands_before_the_suffixes(path, named):
    assert with_target(path) == named
