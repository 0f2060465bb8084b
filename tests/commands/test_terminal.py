"""What stderr is given when it is a terminal, when it is a file, and when nobody wants it."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

COMMAND = [sys.executable, "-m", "nllb_cli", "translate", "--src", "eng_Latn", "--tgt", "fra_Latn"]
COMMAND += ["--beam", "1"]
BACK = b"\x1b[?25h"
"""Shows the cursor again."""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"I have {n} books and {n + 7} pens.\n" for n in range(400)))
    return path


def run_in_terminal(arguments, width, signals=0):
    """Return exit code and what a terminal of a width was given; interrupt when rows are there."""
    terminal, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
    os.close(stderr)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # nobody writes to it any more
            break
        if signals and re.search(rb"[1-9]\d*/400 rows", shown):
            process.send_signal(signal.SIGINT)
            signals -= 1
            time.sleep(0.05)
    os.close(terminal)
    return process.wait(60), shown


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 160])
def test_a_terminal_is_given_a_bar_of_one_line(source, tmp_path, width):
    code, shown = run_in_terminal([*COMMAND, source, "-o", tmp_path / "out.txt"], width)
    assert code == 0
    bars = [line for line in shown.decode().split("\r") if "/400 rows" in line]
    assert bars
    for bar in bars:
        text = bar.split("\n")[0].encode().replace(BACK, b"").decode()
        assert len(visible(text)) < width
    assert shown.rindex(BACK) > shown.rindex(b"\x1b[?25l")
    assert visible(shown.decode()).strip().split("\n")[-1].strip().startswith("nllb: 400 rows in ")


@pytest.mark.slow
def test_two_interrupts_leave_the_cursor_to_be_seen(source, tmp_path):
    code, shown = run_in_terminal([*COMMAND, source, "-o", tmp_path / "out.txt"], 80, signals=2)
    assert code == 130
    assert shown.rindex(BACK) > shown.rindex(b"\x1b[?25l")
    last = visible(shown.decode()).strip().split("\n")[-1]
    assert last.startswith("nllb: stopped; this continues: ")


@pytest.mark.slow
def test_a_file_is_given_no_bar_and_quiet_gives_it_nothing(source, tmp_path):
    for options, expected in (([], ["nllb: using the small", "nllb: 20 rows in"]), (["-q"], [])):
        command = [*COMMAND, source, "--limit", "20", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stdout.count("\n") == 20
        lines = done.stderr.splitlines()
        assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


def visible(text):
    """Drop the escape sequences of a text."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
