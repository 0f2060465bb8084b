"""What a file is that is no UTF-8 text, told by its first bytes."""

from nllb_cli.errors import InputError

_UTF = "holds {0}, not UTF-8; convert it with `iconv -f {0} -t utf-8`"
_PACKED = "is packed with {0}; unpack it with `{0} -dc`, or name it with the suffix {1}"
_PARQUET = "is a Parquet file, not text; --format parquet reads it"
PIPED_PARQUET = (
    "stdin: Parquet is read from its end, which a pipe has not; save it to a file "
    "(`cat > in.parquet`) and give that as the input"
)
_KINDS: dict[bytes, str] = {
    b"\xff\xfe\0\0": _UTF.format("utf-32"),  # before utf-16, which begins alike
    b"\0\0\xfe\xff": _UTF.format("utf-32"),
    b"\xff\xfe": _UTF.format("utf-16"),
    b"\xfe\xff": _UTF.format("utf-16"),
    b"\x1f\x8b": _PACKED.format("gzip", ".gz"),
    b"BZh91AY&SY": _PACKED.format("bzip2", ".bz2"),
    b"\xfd7zXZ\0": _PACKED.format("xz", ".xz"),
    b"\x28\xb5\x2f\xfd": _PACKED.format("zstd", ".zst"),
    b"PAR1\x15": _PARQUET,  # the letters alone may begin a text
}
MAGIC_BYTES = max(map(len, _KINDS))
"""So many first bytes tell all kinds."""


def refuse_no_text(start: bytes, name: str) -> None:
    """Refuse what is known not to be text.

    Raises:
        InputError: says what it is, and how it can be read.
    """
    for magic, told in _KINDS.items():
        if start.startswith(magic):
            is_piped = told is _PARQUET and name == "stdin"
            raise InputError(PIPED_PARQUET if is_piped else f"{name}: {told}")
