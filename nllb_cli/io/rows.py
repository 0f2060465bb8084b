"""Bytes to rows: a file or stdin in big chunks, cut at LF only, decoded from UTF-8.

A row ends at LF and nowhere else: U+2028, U+0085, VT, FF, FS and a lone CR stay inside it. A CR
before the LF is left on the row; the format decides. One leading byte-order mark is dropped.
Of another kind of file the first bytes tell, and it is refused as a whole.
Bytes that are no UTF-8 become U+FFFD and the row is named in `Block.errors`.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nllb_cli.errors import InputError
from nllb_cli.io.compression import CHUNK_BYTES, decompress, suffix_of
from nllb_cli.io.magic import MAGIC_BYTES, refuse_no_text

MAX_ROW_BYTES = 1 << 26
STDIN = "-"
BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Block:
    """Rows that follow each other."""

    first: int
    """Index of the first row."""
    rows: list[str]
    """Without their LF."""
    is_open: bool = False
    """True if the last row has no LF, which only the last of a file can be."""
    errors: dict[int, str] = field(default_factory=dict)
    """What is wrong with the row of this index."""
    is_plain: bool = False
    """True if every row ends with LF alone and nothing is wrong with any."""


class ByteInput:
    """A file or stdin as chunks of bytes, decompressed by its suffix."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == STDIN else path
        self.bytes_read = 0
        """Bytes taken from the file on disk, compressed or not."""
        self.suffix = "" if path == STDIN else suffix_of(path)
        self.num_bytes = None if path == STDIN else self._size()

    def _size(self) -> int | None:
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                return None  # a pipe or device: opening it here would take its content
            with open(self.path, "rb"):
                return status.st_size
        except OSError as error:
            raise _unreadable(self.name, error) from None

    def chunks(self) -> Iterator[bytes]:
        """Yield the content as it comes; a file is opened anew each time, stdin only once."""
        try:
            fd = 0 if self.path == STDIN else os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        self.bytes_read = 0
        try:
            yield from self._chunks(fd)
            self._check_size(fd)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        finally:
            if fd:
                os.close(fd)

    def _chunks(self, fd: int) -> Iterator[bytes]:
        def read(num_bytes: int) -> bytes:
            data = os.read(fd, num_bytes)
            self.bytes_read += len(data)
            return data

        if self.suffix:
            yield from decompress(read, self.suffix, self.name)
        else:
            while chunk := read(CHUNK_BYTES):
                yield chunk

    def _check_size(self, fd: int) -> None:
        """Refuse a file that was cut or continued while it was read: rows would be lost."""
        if self.num_bytes is None or self.num_bytes == self.bytes_read == os.fstat(fd).st_size:
            return
        raise InputError(
            f"{self.name}: its size changed from {self.num_bytes} bytes while it was read;"
            " run again on a file that nobody writes to"
        )


def _unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be read ({error.strerror}); check the path and its rights")


def blocks(source: ByteInput, start: int = 0) -> Iterator[Block]:
    """Yield the rows from index `start` on, as they arrive."""
    index = 0
    for data in line_chunks(source):
        num_rows = data.count(b"\n") + (not data.endswith(b"\n"))
        if index + num_rows > start:
            if index < start:
                data = _skip_lines(data, start - index)
                num_rows, index = num_rows - (start - index), start
            yield _block(data, index)
        index += num_rows


def count_rows(source: ByteInput) -> int:
    """Count the rows of a file by reading it once."""
    return sum(data.count(b"\n") + (not data.endswith(b"\n")) for data in line_chunks(source))


def count_lines(path: Path, max_rows: int | None = None) -> tuple[int, int]:
    """Count the rows that end with LF, at most so many, and the bytes they take."""
    num_rows = num_bytes = position = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            found = chunk.count(b"\n")
            if max_rows is not None and num_rows + found >= max_rows:
                for _ in range(max_rows - num_rows):
                    start = max(0, num_bytes - position)
                    num_bytes = position + chunk.index(b"\n", start) + 1
                return max_rows, num_bytes
            if found:
                num_bytes = position + chunk.rindex(b"\n") + 1
                num_rows += found
            position += len(chunk)
    return num_rows, num_bytes


def line_chunks(source: ByteInput) -> Iterator[bytes]:
    """Yield chunks that end with LF; the last may not."""
    pieces: list[bytes] = []
    size = 0
    is_start = True
    for chunk in source.chunks():
        cut = chunk.rfind(b"\n") + 1
        pieces.append(chunk[:cut] if cut else chunk)
        size += len(pieces[-1])
        if is_start and (cut or size >= MAGIC_BYTES):
            pieces, size = _begun(pieces, source.name)
            is_start = False
        if cut:
            if size:
                yield b"".join(pieces)
            pieces, size = ([chunk[cut:]], len(chunk) - cut) if cut < len(chunk) else ([], 0)
        if size > MAX_ROW_BYTES:
            raise InputError(
                f"{source.name}: a row of more than {MAX_ROW_BYTES >> 20} MiB;"
                " is it text with one row a line?"
            )
    if is_start:
        pieces, size = _begun(pieces, source.name)
    if size:
        yield b"".join(pieces)


def _begun(pieces: list[bytes], name: str) -> tuple[list[bytes], int]:
    """Return a file's first bytes without a byte-order mark, and their number."""
    data = b"".join(pieces)
    refuse_no_text(data, name)
    data = data.removeprefix(BOM)
    return [data], len(data)


def _skip_lines(data: bytes, num_lines: int) -> bytes:
    position = 0
    for _ in range(num_lines):
        position = data.index(b"\n", position) + 1
    return data[position:]


def _block(data: bytes, first: int) -> Block:
    is_open = not data.endswith(b"\n")
    try:
        rows = data.decode().split("\n")
        errors: dict[int, str] = {}
    except UnicodeDecodeError:
        rows, errors = _decode_rows(data, first)
    if not is_open:
        rows.pop()
    is_plain = not is_open and not errors and b"\r\n" not in data
    return Block(first, rows, is_open, errors, is_plain)


def _decode_rows(data: bytes, first: int) -> tuple[list[str], dict[int, str]]:
    rows, errors = [], {}
    for index, raw in enumerate(data.split(b"\n"), first):
        try:
            rows.append(raw.decode())
        except UnicodeDecodeError as error:
            errors[index] = f"invalid UTF-8, byte 0x{raw[error.start]:02x} at {error.start + 1}"
            rows.append(raw.decode("utf-8", "replace"))
    return rows, errors
