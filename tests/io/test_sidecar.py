"""What tells one run from another."""

import os

import pytest

from nllb_cli.errors import InputError
from nllb_cli.io import sidecar
from nllb_cli.io.sidecar import (
    WHOLE_BYTES,
    fingerprint,
    is_same_content,
    read_sidecar,
    write_sidecar,
)


def test_a_fingerprint_sees_size_time_head_and_tail(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(bytes(3_000_000))
    os.utime(path, ns=(5, 5))
    first = fingerprint(str(path))
    assert first == fingerprint(str(path))
    for position in (0, 2_999_999):
        data = bytearray(3_000_000)
        data[position] = 1
        path.write_bytes(data)
        os.utime(path, ns=(5, 5))
        other = fingerprint(str(path))
        assert different(first, other) == ["sample"]
    path.write_bytes(bytes(3_000_000))
    os.utime(path, ns=(6, 6))
    assert different(first, fingerprint(str(path))) == ["mtime_ns"]
    with pytest.raises(InputError, match="cannot be read"):
        fingerprint(str(tmp_path / "none"))


def different(one, other):
    return [name for name in one if one[name] != other[name]]


@pytest.mark.parametrize("size", [1, 7, 8, 50, 105, 111, 112])
def test_of_a_small_file_the_samples_leave_no_byte_out(tmp_path, monkeypatch, size):
    monkeypatch.setattr(sidecar, "_SAMPLE_BYTES", 7)
    monkeypatch.setattr(sidecar, "WHOLE_BYTES", 7 * 16)
    assert sidecar.WHOLE_BYTES == sidecar._SAMPLE_BYTES * sidecar._NUM_SAMPLES
    path = tmp_path / "in.txt"
    path.write_bytes(bytes(size))
    first = fingerprint(str(path))
    os.utime(path, ns=(5, 5))
    assert is_same_content(first, fingerprint(str(path)))
    for position in range(size):
        data = bytearray(size)
        data[position] = 1
        path.write_bytes(data)
        assert not is_same_content(first, fingerprint(str(path))), position


def test_of_a_large_file_the_time_counts(tmp_path):
    path = tmp_path / "in.txt"
    for size in (WHOLE_BYTES, WHOLE_BYTES + 1):
        path.write_bytes(bytes(size))
        os.utime(path, ns=(5, 5))
        first = fingerprint(str(path))
        assert is_same_content(first, fingerprint(str(path)))
        os.utime(path, ns=(6, 6))
        assert is_same_content(first, fingerprint(str(path))) == (size == WHOLE_BYTES)


def test_a_sidecar_is_whole_or_absent(tmp_path):
    path = tmp_path / "out.part.json"
    assert read_sidecar(path) is None
    write_sidecar(path, {"settings": {"tgt": ["é"]}})
    assert read_sidecar(path) == {"settings": {"tgt": ["é"]}}
    assert list(tmp_path.iterdir()) == [path]
    for content in (b"{", b"[]", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InputError, match="damaged; start again with --overwrite"):
            read_sidecar(path)
