"""kill -9 at any moment, resumed until done: the bytes of a run that nobody disturbed.

NLLB_KILLS says how many runs are killed for each format.
"""

import json
import os
import random
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.options import IoOptions
from tests.io.pump import pump

NUM_KILLS = int(os.environ.get("NLLB_KILLS", "3"))
NUM_ROWS = 6000
RUN = """
import sys, time
from nllb_cli.io import partial
from nllb_cli.io.formats import open_sink, open_source
from nllb_cli.options import IoOptions
from nllb_cli.records import Translation

partial._PENDING_CHARS = 500
if sys.argv[1].endswith(".parquet"):
    from nllb_cli.io import parquet
    parquet.PART_ROWS = 97
options = IoOptions("e", ("f", "g"), on_error="keep", status_field="state")
source = open_source(sys.argv[1], options)
sink = open_sink(sys.argv[2], source, options, mode="resume", settings={"beam": 4})
print("begun", flush=True)
if not sink.is_finished:
    for record in source.records(sink.num_rows):
        texts = tuple(None if text is None else text.upper() for text in record.texts)
        status = "failed" if record.error else "ok"
        scores = ((None,), (None,))
        sink.write_all([Translation(record, (texts, texts), scores, status, record.error)])
        if record.index % 61 == 0:
            time.sleep(0.001)
            sink.flush()
    sink.finish()
sink.close()
"""


def make(folder, suffix):
    source = folder / f"in{suffix}"
    texts = [None if n % 50 == 7 else f"row {n}, é" for n in range(NUM_ROWS)]
    if suffix == ".parquet":
        pq.write_table(pa.table({"n": range(NUM_ROWS), "text": texts}), source, row_group_size=1000)
    elif suffix == ".jsonl":
        rows = [{"text": text} if n % 30 else {"n": n} for n, text in enumerate(texts)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".csv":
        source.write_text(
            "text,n\n" + "".join(f'"{t or ""}\n2",{n}\n' for n, t in enumerate(texts))
        )
    else:
        source.write_text("\n".join(text or "" for text in texts))
    return source


def run_until_done(folder, source, target, num_kills, chance):
    """Kill runs at random moments, the last after all kills not. Return how many were killed."""
    killed = 0
    while True:
        with subprocess.Popen(
            [sys.executable, "-c", RUN, str(source), str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        ) as process:
            assert process.stdout.readline() == b"begun\n", process.stderr.read()
            if killed < num_kills:
                time.sleep(chance.uniform(0, 0.05))
                process.kill()
            _, errors = process.communicate()
        if process.returncode == 0:
            return killed
        assert process.returncode == -9, errors
        killed += 1


def check(folder, suffix, num_kills):
    chance = random.Random(suffix)
    source = make(folder, suffix)
    name = "{}.{{tgt}}.txt" if suffix == ".txt" else f"{{}}{suffix}"
    whole, target = folder / name.format("whole"), folder / name.format("out")
    options = IoOptions("e", ("f", "g"), on_error="keep", status_field="state")
    pump(source, whole, options)
    files = sorted(path.name for path in folder.iterdir())
    total = 0
    while total < num_kills:
        total += run_until_done(folder, source, target, num_kills - total, chance)
        for path in folder.glob("out*"):
            assert path.read_bytes() == (folder / path.name.replace("out", "whole")).read_bytes()
            path.unlink()
    assert sorted(path.name for path in folder.iterdir()) == files


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_killed_and_resumed_is_undisturbed(tmp_path, suffix):
    check(tmp_path, suffix, NUM_KILLS)
