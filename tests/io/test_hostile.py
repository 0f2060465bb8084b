"""Cut, flipped and spliced files end in one line or in rows; never in a traceback or a hang."""

import bz2
import gzip
import json
import lzma
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import NllbError
from nllb_cli.options import IoOptions
from tests.io.pump import pump

TEXTS = [f"row {n} é \u2028 “{n * n}”" for n in range(300)]
LINES = "\n".join(TEXTS).encode()
JSONL = "".join(json.dumps({"id": n, "text": t, "x": [1.0]}) + "\n" for n, t in enumerate(TEXTS))
CSV = "id,text\n" + "".join(f'{n},"{text}, ""{n}"""\n' for n, text in enumerate(TEXTS))


def make_parquet(compression, **how):
    table = pa.table(
        {
            "id": range(300),
            "text": TEXTS,
            "kind": pa.array(["a", "b", None] * 100).dictionary_encode(),
            "nested": [{"a": [n, None]} for n in range(300)],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=120, compression=compression, **how)
    return sink.getvalue().to_pybytes()


def make_zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


SEEDS = {
    "lines": (".txt", [LINES]),
    "jsonl": (".jsonl", [JSONL.encode()]),
    "csv": (".csv", [CSV.encode()]),
    "tsv": (".tsv", [CSV.replace(",", "\t").encode()]),
    "gz": (".txt.gz", [gzip.compress(LINES)]),
    "bz2": (".jsonl.bz2", [bz2.compress(JSONL.encode())]),
    "xz": (".csv.xz", [lzma.compress(CSV.encode())]),
    "zst": (".txt.zst", [make_zstd(LINES)]),
    "parquet": (
        ".parquet",
        [
            make_parquet("snappy"),
            make_parquet("none", use_dictionary=False),
            make_parquet("zstd", data_page_version="2.0", write_page_index=True),
            make_parquet("gzip", data_page_size=500),
            make_parquet("lz4", store_schema=False),
        ],
    ),
}


def damaged(content, chance):
    """Return the content with one kind of damage."""
    data = bytearray(content)
    kind = chance.randrange(6)
    if kind == 0:
        return bytes(data[: chance.randrange(len(data))])
    if kind == 1:
        start = chance.randrange(len(data))
        del data[start : start + chance.randrange(1, 50)]
    elif kind == 2:
        start = chance.randrange(len(data))
        data[start:start] = chance.randbytes(chance.randrange(1, 50))
    elif kind == 3:
        start, end = sorted(chance.sample(range(len(data)), 2))
        data[start:end] = bytes(end - start)
    elif kind == 4:  # where Parquet keeps its metadata, and lengths stand
        tail = min(len(data), 600)
        for _ in range(chance.randrange(1, 4)):
            data[-1 - chance.randrange(tail)] = chance.choice([0, 0x7F, 0x80, 0xFF])
    else:
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def run(folder, suffix, content, options):
    """Pump a file, and return its error text or None."""
    source = folder / f"in{suffix}"
    source.write_bytes(content)
    try:
        pump(source, folder / f"out{suffix}", options, mode="overwrite")
    except NllbError as error:
        return str(error)
    return None


@pytest.mark.parametrize("batch", range(10))
@pytest.mark.parametrize("kind", SEEDS)
def test_a_damaged_file_is_one_line_or_rows(tmp_path, kind, batch):
    suffix, seeds = SEEDS[kind]
    chance = random.Random(f"{kind} {batch}")
    for _ in range(20 if kind == "parquet" else 11):
        options = IoOptions("e", ("f",), on_error=chance.choice(["fail", "keep"]))
        content = damaged(chance.choice(seeds), chance)
        text = run(tmp_path, suffix, content, options)
        if text is not None:
            assert "\n" not in text
            assert text.startswith(f"{tmp_path}/in{suffix}")
            assert len(text) < 1000


@pytest.mark.parametrize("kind", SEEDS)
def test_another_kind_of_file_is_one_line_or_rows(tmp_path, kind):
    suffix, _ = SEEDS[kind]
    others = [seed for _, seeds in SEEDS.values() for seed in seeds]
    for content in [*others, b"", b"\0" * 5000, b"PAR1" * 300, b"\x1f\x8b", b"[" * 200_000]:
        for on_error in ("fail", "keep"):
            text = run(tmp_path, suffix, content, IoOptions("e", ("f",), on_error=on_error))
            assert text is None or "\n" not in text


def test_a_bomb_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    from nllb_cli.io import rows

    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 1 << 22)
    content = gzip.compress(bytes(1 << 27))
    text = run(tmp_path, ".txt.gz", content, IoOptions("e", ("f",)))
    assert "a row of more than 4 MiB" in text
