"""A disk that fills: one line that names the file, rows kept, and with room the same bytes.

The disk is a tmpfs that only the process of the test sees. To mount it takes rights that not every
machine gives; a limit on the size of files and /dev/full ask for none.
"""

import json
import os
import subprocess
import sys
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli import cli
from tests.io.test_row_files import file_size_limit

OPTIONS = ["--src", "eng_Latn", "--tgt", "fra_Latn", "--beam", "1", "--quiet"]
NUM_ROWS = 2000
CASES = {
    "lines": (".txt", 24, "out.txt.part", True),
    "jsonl": (".jsonl", 64, "out.jsonl.part", True),
    "csv": (".csv", 64, "out.csv.part", True),
    "a part of Parquet": (".parquet", 12, "000002.parquet", True),
    "all of Parquet": (".parquet", 28, "out.parquet.part", True),
    "before packing": (".txt.gz", 24, "out.txt.gz.part", True),
    "while packing": (".txt.xz", 56, "out.txt.xz", True),
    "its first rows": (".txt", 8, "out.txt.part", False),
}
"""Suffix of the output, KiB of the disk, what finds it full, whether rows are safe then."""
SCRIPT = """
import contextlib, io, json, os, subprocess, sys
from nllb_cli import cli
from nllb_cli.io import parquet, partial

partial._PENDING_CHARS, parquet.PART_ROWS = 8000, 500

def run(arguments, disk):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = cli.run(arguments)
    return int(code), errors.getvalue().splitlines(), sorted(os.listdir(disk))

found = {}
for name, num_kib, disk, arguments, whole in json.load(sys.stdin):
    os.mkdir(disk)
    size = f"size={num_kib}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
    full = run(arguments, disk)
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    resumed = run([*arguments, "--resume"], disk)
    same = open(arguments[-1], "rb").read() == open(whole, "rb").read()
    found[name] = [full, resumed, same]
print(json.dumps(found))
"""


def may_mount():
    """Whether this process may mount a file system that others do not see."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def make(folder, suffix):
    """Write what needs the model seldom: repeated sentences, and blanks that do not pack well."""
    path = folder / f"in{suffix}"
    sentences, chance = ["Good morning.", "Where is the station?", "The shop is closed."], Random(1)
    texts = []
    for _ in range(NUM_ROWS // 4):
        texts += [*sentences, "".join(chance.choices(" \t\v\f\x1c\x1d\x1e\x1f", k=40))]
    if suffix == ".parquet":
        numbers = [str(n * 7919 % 10_007) for n in range(NUM_ROWS)]
        pq.write_table(pa.table({"id": numbers, "text": texts}), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        path.write_text("text\n" * (suffix == ".csv") + "".join(f"{text}\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What each case's run says on the full disk, and what it says and leaves with room."""
    if not may_mount():
        pytest.skip("a tmpfs can be mounted by root only")
    folder = tmp_path_factory.mktemp("disks")
    cases = []
    for name, (suffix, num_kib, _, _) in CASES.items():
        source = make(folder, "." + suffix.split(".")[1])
        whole, disk = folder / f"whole{suffix}", folder / name
        arguments = ["translate", str(source), *OPTIONS, "-o"]
        if not whole.exists():
            assert cli.run([*arguments, str(whole)]) == 0
        given = [*arguments, str(disk / f"out{suffix}")]
        cases.append((name, num_kib, str(disk), given, str(whole)))
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", SCRIPT],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_is_one_line_and_with_room_the_same_bytes(outcomes, case):
    suffix, _, culprit, is_begun = CASES[case]
    full, resumed, is_same = outcomes[case]
    code, lines, files = full
    assert (code, len(lines)) == (3, 1), lines
    assert f"{culprit}: cannot be written (No space left on device)" in lines[0]
    assert ("rows are safe, mend it and continue with --resume" in lines[0]) == is_begun
    assert any(".part" in name for name in files)
    assert f"out{suffix}" not in files
    assert resumed == [0, [], [f"out{suffix}"]]
    assert is_same


def test_a_file_that_may_not_grow_is_one_line_and_without_limit_the_same_bytes(tmp_path, capsys):
    source, whole, target = make(tmp_path, ".txt"), tmp_path / "whole.txt", tmp_path / "out.txt"
    given = ["translate", str(source), *OPTIONS, "-o"]
    assert cli.run([*given, str(whole)]) == 0
    with file_size_limit(20_000):
        assert cli.run([*given, str(target)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nllb: {target}.part: cannot be written (File too large)")
    assert not target.exists()
    assert cli.run([*given, str(target), "--resume"]) == 0
    assert target.read_bytes() == whole.read_bytes()


def test_a_full_disk_under_log_record_or_stdout_is_one_line(tmp_path, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("Good morning.\n")
    given = ["translate", str(source), *OPTIONS]
    assert cli.run([*given, "-o", str(target), "--log-json", "/dev/full"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "nllb: /dev/full: cannot be written (No space left on device)"
    assert not target.exists()
    record = tmp_path / "run.json"
    given += ["--overwrite", "--record", str(record)]
    assert cli.run([*given, "-o", str(target)]) == 0
    before = record.read_bytes()
    with file_size_limit(len(before) - 100):  # nothing else is as large
        assert cli.run([*given, "-o", str(target)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("run.json: cannot be written (File too large)")
    assert (target.read_text(), record.read_bytes()) == ("Bonjour.\n", before)
    # it was to be replaced: --resume does that, and takes nothing that stands there for complete
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.txt", "out.txt.part.json", "run.json"]
    again = [word for word in given if word != "--overwrite"]
    assert cli.run([*again, "-o", str(target), "--resume"]) == 0
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.txt", "run.json"]
    given = given[:-3]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nllb_cli", *given], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 3
    assert done.stderr == b"nllb: stdout: cannot be written (No space left on device)\n"
