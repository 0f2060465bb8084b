"""Bytes to rows, however the bytes arrive."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import InputError
from nllb_cli.io import rows
from nllb_cli.io.rows import ByteInput, blocks, count_lines, count_rows
from tests.io.pump import PROPERTY


class Chunks:
    """A byte input that gives its content in pieces of one size."""

    name = "fake"

    def __init__(self, content, size):
        self.pieces = [content[i : i + size] for i in range(0, len(content), size)]

    def chunks(self):
        yield from self.pieces


def expected_rows(content):
    content = content.removeprefix(b"\xef\xbb\xbf")
    found = content.split(b"\n")
    return found if found[-1] else found[:-1]


@PROPERTY
@given(
    content=st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\xef\xbb\xbf", "é".encode(), b"\xff"]))
    .map(b"".join)
    .filter(lambda content: len(content) < 100),
    size=st.integers(1, 9),
    start=st.integers(0, 12),
)
def test_rows_do_not_depend_on_chunks(content, size, start):
    expected = expected_rows(content)
    assert count_rows(Chunks(content, size)) == len(expected)
    found, index = [], start
    for block in blocks(Chunks(content, size), start):
        assert block.first == index
        found += block.rows
        index += len(block.rows)
        for wrong in block.errors:
            assert "\ufffd" in block.rows[wrong - block.first]
    assert found == [row.decode("utf-8", "replace") for row in expected[start:]]
    if found:
        assert block.is_open == (not content.endswith(b"\n"))


def test_a_row_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 1 << 20)
    with pytest.raises(InputError, match="a row of more than 1 MiB"):
        list(blocks(Chunks(b"x" * (1 << 21), 1 << 18)))


def test_rows_of_a_pipe_come_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    gate = threading.Event()

    def feed():
        with open(pipe, "wb", buffering=0) as file:
            file.write(b"first\nsec")
            gate.wait(10)
            file.write(b"ond\n")

    writer = threading.Thread(target=feed)
    writer.start()
    source = ByteInput(str(pipe))
    assert source.num_bytes is None
    found = blocks(source)
    assert next(found).rows == ["first"]
    gate.set()
    assert next(found).rows == ["second"]
    assert next(found, None) is None
    writer.join()


@pytest.mark.parametrize("after", [b"", b"a\n", b"a\nb\nc\n"])
def test_a_file_that_changes_while_read_is_refused(tmp_path, after):
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    source = ByteInput(str(path))
    path.write_bytes(after)
    with pytest.raises(InputError, match="its size changed from 4 bytes"):
        list(blocks(source))


def test_unreadable_inputs_are_one_line(tmp_path):
    for path, reason in [(tmp_path / "none", "No such file"), (tmp_path, "Is a directory")]:
        with pytest.raises(InputError, match=rf"{path}: cannot be read \({reason}"):
            ByteInput(str(path))


def test_bytes_read_are_those_on_disk(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"row\n" * 200_000)
    source = ByteInput(str(path))
    found = blocks(source)
    next(found)
    assert 0 < source.bytes_read < source.num_bytes == 800_000
    assert sum(len(block.rows) for block in found) < 200_000
    assert source.bytes_read == source.num_bytes


@pytest.mark.parametrize("content", [b"", b"a", b"a\n", b"a\nb", b"\n\n\n", b"ab\ncd\n\nef\ng"])
def test_complete_lines_are_counted_and_cut(tmp_path, content):
    path = tmp_path / "x.part"
    path.write_bytes(content)
    rows = content.count(b"\n")
    assert count_lines(path) == (rows, content.rfind(b"\n") + 1)
    for limit in range(rows + 2):
        expected = b"".join(content.splitlines(keepends=True)[: min(limit, rows)])
        assert count_lines(path, limit) == (min(limit, rows), len(expected))


def test_lines_are_counted_over_chunks(tmp_path):
    path = tmp_path / "x.part"
    path.write_bytes((b"x" * 999_999 + b"\n") * 5 + b"y" * 3_000_000 + b"\nz")
    assert count_lines(path) == (6, 8_000_001)
    assert count_lines(path, 5) == (5, 5_000_000)
    assert count_lines(path, 6) == (6, 8_000_001)
