"""Compressed files by suffix: .gz, .bz2, .xz and .zst, chunk by chunk in both directions."""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from nllb_cli.errors import InputError

CHUNK_BYTES = 1 << 18
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
UNREADABLE_SUFFIXES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".lz4", ".br", ".z")

Read = Callable[[int], bytes]


def suffix_of(path: str) -> str:
    """Return the compression suffix of a path, or an empty string.

    Raises:
        InputError: the suffix is that of an archive that is not read.
    """
    lower = path.lower()
    for suffix in UNREADABLE_SUFFIXES:
        if lower.endswith(suffix):
            raise InputError(f"{path}: {suffix} files are not read; unpack it first")
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), "")


def with_target(path: str) -> str:
    """Return a path with `{tgt}` before its suffix, or before `.txt.gz` and its like."""
    plain = without_suffix(path)
    stem, suffix = os.path.splitext(plain)
    return f"{stem}.{{tgt}}{suffix}{path[len(plain) :]}"


def without_suffix(path: str) -> str:
    """Return the path without its compression suffix."""
    suffix = suffix_of(path)
    return path[: len(path) - len(suffix)]


def decompress(read: Read, suffix: str, name: str) -> Iterator[bytes]:
    """Yield the content of a compressed stream in chunks of bounded size.

    Concatenated members are read one after the other, as gzip, bzip2, xz and zstd do.

    Raises:
        InputError: the stream is damaged, cut short or of another kind.
    """
    chunks = _zstd_chunks(read) if suffix == ".zst" else _member_chunks(read, suffix)
    try:
        yield from chunks
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the stream's
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{name}: damaged or not a {suffix} file ({text}); fetch or pack it again"
        ) from None


def _new_decompressor(suffix: str) -> Any:
    if suffix == ".gz":
        return zlib.decompressobj(wbits=31)
    return bz2.BZ2Decompressor() if suffix == ".bz2" else lzma.LZMADecompressor(lzma.FORMAT_XZ)


def _member_chunks(read: Read, suffix: str) -> Iterator[bytes]:
    data = read(CHUNK_BYTES)
    while data:
        stream = _new_decompressor(suffix)
        while not stream.eof:
            chunk = stream.decompress(data, CHUNK_BYTES)
            if chunk:
                yield chunk
            data = _rest(stream, suffix)
            if not stream.eof and not data and _needs_input(stream, chunk):
                data = read(CHUNK_BYTES)
                if not data:
                    raise EOFError("it ends too early")
        data = stream.unused_data or read(CHUNK_BYTES)
        # Tape and disk blocks are padded with zeros, which gzip and xz ignore.
        while data and not data.strip(b"\0"):
            data = read(CHUNK_BYTES)


def _rest(stream: Any, suffix: str) -> bytes:
    """Return input that zlib gave back; bz2 and lzma keep theirs inside."""
    return bytes(stream.unconsumed_tail) if suffix == ".gz" else b""


def _needs_input(stream: Any, chunk: bytes) -> bool:
    """Tell whether the decompressor can go on only with more input."""
    return bool(getattr(stream, "needs_input", len(chunk) < CHUNK_BYTES))


def _zstd_chunks(read: Read) -> Iterator[bytes]:
    import pyarrow

    class Reader:
        """The few methods that Arrow asks of a file."""

        closed = False

        def read(self, num_bytes: int = CHUNK_BYTES) -> bytes:
            return read(min(num_bytes, CHUNK_BYTES))

        def readable(self) -> bool:
            return True

        def close(self) -> None:
            pass

    source = pyarrow.PythonFile(Reader(), mode="r")
    with pyarrow.CompressedInputStream(source, "zstd") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def compress(source: BinaryIO, target: BinaryIO, suffix: str) -> None:
    """Write the content of one file into another as a single compressed stream.

    The result depends on the content alone: no time stamp, no name.
    """
    if suffix == ".zst":
        _compress_zstd(source, target)
        return
    stream: Any
    if suffix == ".gz":
        stream = zlib.compressobj(6, wbits=31)
    elif suffix == ".bz2":
        stream = bz2.BZ2Compressor(9)
    else:
        stream = lzma.LZMACompressor(lzma.FORMAT_XZ, preset=6)
    while chunk := source.read(CHUNK_BYTES):
        target.write(stream.compress(chunk))
    target.write(stream.flush())


def _compress_zstd(source: BinaryIO, target: BinaryIO) -> None:
    import pyarrow

    class Writer:
        """The few methods that Arrow asks of a file; closing the stream leaves it open."""

        closed = False

        def write(self, data: bytes) -> int:
            return target.write(data)

        def flush(self) -> None:
            pass

        def close(self) -> None:
            pass

    sink = pyarrow.PythonFile(Writer(), mode="w")
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        while chunk := source.read(CHUNK_BYTES):
            stream.write(chunk)
