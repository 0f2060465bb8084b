"""Files of another kind under a name of text are told by their first bytes."""

import bz2
import gzip
import lzma
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.formats import open_source
from nllb_cli.io.magic import MAGIC_BYTES, refuse_no_text
from nllb_cli.io.rows import blocks
from nllb_cli.options import IoOptions
from tests.io.pump import OPTIONS, read_all
from tests.io.test_rows import Chunks

TEXT = "text\nGrüße.\n"
KEEP = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep")


def make_parquet(texts):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": texts}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (TEXT.encode("utf-16"), "utf-16, .*`iconv -f utf-16 -t utf-8`"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16, .*`iconv -f utf-16 -t utf-8`"),
        (TEXT.encode("utf-32"), "utf-32, .*`iconv -f utf-32 -t utf-8`"),
        (gzip.compress(TEXT.encode()), r"gzip; .*`gzip -dc`, .* \.gz"),
        (bz2.compress(TEXT.encode()), r"bzip2; .* \.bz2"),
        (lzma.compress(TEXT.encode()), r"xz; .* \.xz"),
        (pa.Codec("zstd").compress(TEXT.encode(), asbytes=True), r"zstd; .* \.zst"),
        (make_parquet(["a", "b"]), "--format parquet"),
        (make_parquet(pa.array([], pa.string())), "--format parquet"),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv", ".txt.gz"])
@pytest.mark.parametrize("options", [OPTIONS, KEEP])
def test_another_kind_is_named_with_its_remedy(tmp_path, content, told, suffix, options):
    packed = gzip.compress(content) if suffix == ".txt.gz" else content
    with pytest.raises(InputError, match=rf"in{suffix}: .*{told}"):
        read_all(tmp_path, packed, suffix, options)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_it_is_told_however_the_bytes_arrive(size):
    for content in (TEXT.encode("utf-16"), gzip.compress(b"a\n"), make_parquet(["a"])):
        with pytest.raises(InputError, match="fake: "):
            list(blocks(Chunks(content, size)))


def test_parquet_in_a_pipe_is_refused_as_with_its_format_named():
    with pytest.raises(InputError) as refused:
        refuse_no_text(make_parquet(["a"])[:MAGIC_BYTES], "stdin")
    with pytest.raises(UsageError, match=re.escape(str(refused.value))):
        open_source("-", OPTIONS, "parquet")


@pytest.mark.parametrize("text", ["PAR1 is a gene", "BZh", "", "\ufeff", "\x1f", "(µ", "ÿþ", "\0"])
def test_text_is_let_through(text):
    refuse_no_text(text.encode()[:MAGIC_BYTES], "x")
