"""kill -9 of the whole command at any moment, resumed until done: the bytes of an undisturbed run.

The command is `nllb translate` with the bundled model. Each run is a process of its own, forked
from one that has imported what a start imports, so that fifty cost little more than their work.
NLLB_KILLS says how many runs are killed for each format.
"""

import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NUM_KILLS = int(os.environ.get("NLLB_KILLS", "5"))
NUM_ROWS = 1200
SENTENCES = [
    "Good morning.",
    "Where is the station?",
    "I have to go to work now.",
    "My brother lives in a small house.",
    "See you tomorrow!",
    "The shop is closed.",
    "She reads a book.",
    "",
]
SERVER = """
import gc, json, os, select, signal, sys, time
import pyarrow.parquet
import nllb_cli.engine.devices, nllb_cli.engine.engine
from nllb_cli import cli, jobs
from nllb_cli.commands import run
from nllb_cli.io import parquet, partial

# many moments at which something has just been, or is not yet, written
partial._PENDING_CHARS, jobs.FLUSH_S, parquet.PART_ROWS = 2000, 0.01, 97
open_sink = jobs.open_sink

def open_sink_and_tell(*arguments):
    sink = open_sink(*arguments)
    os.write(told, b".")
    return sink

jobs.open_sink = open_sink_and_tell
gc.freeze()
for line in sys.stdin:
    arguments, start_s, killed_after_s = json.loads(line)
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        sys.argv = ["nllb", *arguments]
        cli.main()
    os.close(told)
    if killed_after_s is not None:
        select.select([heard], [], [], start_s)
        time.sleep(killed_after_s)
        os.kill(pid, signal.SIGKILL)
    os.close(heard)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Commands:
    """Runs of the command, one after the other, each in a process of its own."""

    def __init__(self, errors):
        self.errors = errors
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with errors.open("w") as file:
            self.server = subprocess.Popen(
                [sys.executable, "-c", SERVER], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip

    def run(self, arguments, start_s=None, killed_after_s=None):
        """Return the exit code. The kill comes some time after the output was opened.

        It does not wait for that longer than `start_s`; None is for as long as it takes.
        """
        self.server.stdin.write(json.dumps([arguments, start_s, killed_after_s]) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def close(self):
        self.server.communicate(timeout=30)
        assert self.server.returncode == 0, self.errors.read_text()


@pytest.fixture
def commands(tmp_path):
    found = Commands(tmp_path / "stderr")
    yield found
    found.close()


def make(folder, suffix):
    path = folder / f"in{suffix}"
    chance = random.Random(3)
    texts = [chance.choice(SENTENCES) for _ in range(NUM_ROWS)]
    if suffix == ".parquet":
        pq.write_table(pa.table({"n": range(NUM_ROWS), "text": texts}), path, row_group_size=500)
    elif suffix == ".jsonl":
        rows = [{"n": n, "text": text} if n % 30 else {"n": n} for n, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("\n".join(texts))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".parquet"])
def test_killed_and_resumed_is_undisturbed(tmp_path, commands, suffix):
    source, folder = make(tmp_path, suffix), tmp_path / "out"
    folder.mkdir()
    whole, target = tmp_path / f"whole{suffix}", folder / f"out{suffix}"
    given = ["translate", str(source), "--src", "eng_Latn", "--tgt", "fra_Latn", "--beam", "1"]
    given += ["--status", "--on-error", "keep", "--quiet"]
    assert commands.run([*given, "-o", str(whole)]) in (0, 1), commands.errors.read_text()
    chance = random.Random(suffix)
    num_killed = num_amid = num_whole = 0
    span_s = 0.3
    while num_killed < NUM_KILLS or not num_whole:
        kill = ()
        if num_killed < NUM_KILLS:
            is_early = chance.random() < 0.2
            kill = (0, chance.uniform(0, 1)) if is_early else (None, chance.uniform(0, span_s))
        code = commands.run([*given, "-o", str(target), "--resume"], *kill)
        assert code in ((-9, 0, 1) if kill else (0, 1)), commands.errors.read_text()
        left = list(folder.iterdir())
        is_amid = any(".part" in path.name for path in left)
        if code == -9:
            num_killed, num_amid = num_killed + 1, num_amid + is_amid
        span_s *= 1.2 if is_amid else 0.8
        if left and not is_amid:
            num_whole += 1
            for path in left:
                expected = tmp_path / path.name.replace("out", "whole")
                assert path.read_bytes() == expected.read_bytes()
                path.unlink()
    assert num_amid > num_killed // 3, "most kills came before the work or behind it"
    print(f"{suffix}: {num_killed} kills, {num_amid} amid the work, {num_whole} times to the end")
