"""What tells one run from another."""

import os

import pytest

from nllb_cli.errors import InputError
from nllb_cli.io.sidecar import fingerprint, read_sidecar, write_sidecar


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
