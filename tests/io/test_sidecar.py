"""What tells one run from another."""

import os

import pytest

from nllb_cli.errors import InputError
from nllb_cli.io.sidecar import changes, fingerprint, read_sidecar, write_sidecar


def test_changes_are_named():
    old = {"version": "1", "decode": {"beam": 4, "alpha": 1.0}, "gone": True}
    new = {"version": "1", "decode": {"beam": 5, "alpha": 1.0}, "new": None}
    assert changes(old, new) == [
        "decode.beam: 4, now 5",
        "gone: True, now absent",
        "new: absent, now None",
    ]
    assert changes(old, old) == []


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
        assert changes(first, other) == [f"sample: {first['sample']}, now {other['sample']}"]
    path.write_bytes(bytes(3_000_000))
    os.utime(path, ns=(6, 6))
    assert changes(first, fingerprint(str(path))) == ["mtime_ns: 5, now 6"]
    with pytest.raises(InputError, match="cannot be read"):
        fingerprint(str(tmp_path / "none"))


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
