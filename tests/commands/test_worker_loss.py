"""Processes of the engine that are killed or stand still under the command: nothing is lost."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.engine.test_workers import wait_until_gone

COMMAND = [sys.executable, "-m", "nllb_cli", "translate", "--src", "eng_Latn", "--tgt", "fra_Latn"]
COMMAND += ["--beam", "1"]


class Run:
    """A run on two devices, its workers known once its first rows are written."""

    def __init__(self, source, target, *options):
        command = [*COMMAND, str(source), "--devices", "cpu,cpu", "-o", str(target), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        part = target.with_name(target.name + ".part")
        deadline = time.monotonic() + 120
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.workers = self._children()
        assert len(self.workers) == 2

    def _children(self):
        pid = str(self.process.pid)
        found = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", pid], capture_output=True, text=True
        )
        lines = [line for line in found.stdout.splitlines() if "spawn_main" in line]
        return [int(line.split()[0]) for line in lines]

    def end(self):
        """Return the exit code, the lines on stderr and the seconds until then."""
        start = time.monotonic()
        _, errors = self.process.communicate(timeout=120)
        assert wait_until_gone(self.workers)
        return self.process.returncode, errors.splitlines(), time.monotonic() - start


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An input that takes seconds, and its translation by a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("files")
    source, whole = folder / "in.txt", folder / "whole.txt"
    source.write_text("".join(f"I have {n} books and {n + 7} pens.\n" for n in range(1200)))
    done = subprocess.run([*COMMAND, source, "-o", whole, "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return source, whole.read_bytes()


@pytest.mark.slow
def test_when_one_process_is_killed_the_other_does_its_rows(files, tmp_path):
    source, whole = files
    run = Run(source, tmp_path / "out.txt")
    os.kill(run.workers[0], signal.SIGKILL)
    code, lines, _ = run.end()
    assert code == 0
    (line,) = [line for line in lines if "process ended" in line]
    assert line.startswith("nllb: cpu (")
    assert "killed by SIGKILL" in line
    assert (tmp_path / "out.txt").read_bytes() == whole


@pytest.mark.slow
def test_when_all_are_killed_a_line_says_so_and_resume_continues(files, tmp_path):
    source, whole = files
    out = tmp_path / "out.txt"
    run = Run(source, out, "--quiet")
    for pid in run.workers:
        os.kill(pid, signal.SIGKILL)
    code, lines, seconds = run.end()
    assert (code, len(lines)) == (5, 1)
    assert "killed by SIGKILL" in lines[0]
    assert "--resume continues it" in lines[0]
    assert seconds < 20
    assert not out.exists()
    assert subprocess.run([*COMMAND, source, "-o", out, "-q", "--resume"]).returncode == 0
    assert out.read_bytes() == whole


@pytest.mark.slow
def test_processes_that_stand_still_do_not_hold_up_the_end(files, tmp_path):
    source, whole = files
    out = tmp_path / "out.txt"
    run = Run(source, out)
    for pid in run.workers:
        os.kill(pid, signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    code, lines, seconds = run.end()
    assert code == 130
    assert "this continues: nllb translate" in lines[-1]
    assert seconds < 30
    assert subprocess.run([*COMMAND, source, "-o", out, "-q", "--resume"]).returncode == 0
    assert out.read_bytes() == whole
