"""The command between pipes: what it reads, when it writes, how it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "nllb_cli", "translate", "--src", "eng_Latn", "--tgt", "fra_Latn"]
COMMAND += ["--beam", "1", "--quiet"]
PIPE = subprocess.PIPE


def test_blank_lines_of_stdin_stay_blank_and_in_their_places():
    done = subprocess.run(
        [*COMMAND, "-"], input=b"Thank you.\n\n \n\t\nGood morning.\n", stdout=PIPE
    )
    assert (done.returncode, done.stdout) == (0, b"Merci.\n\n \n\t\nBonjour.\n")


@pytest.mark.parametrize(("options", "told"), [([], 1), (["--format", "lines"], 0)])
def test_jsonl_that_is_taken_for_lines_is_told_once(options, told):
    rows = b'{"text": "Thank you."}\n{"text": "Good morning."}\n'
    done = subprocess.run(
        [*(word for word in COMMAND if word != "--quiet"), "-", *options],
        input=rows, capture_output=True,
    )  # fmt: skip
    assert done.stdout.count(b"\n") == 2
    assert done.stderr.count(b"nllb: stdin looks like JSONL; --format jsonl translates") == told


@pytest.mark.slow
def test_a_file_and_the_same_bytes_on_stdin_come_out_equal(tmp_path):
    path = tmp_path / "big.txt"
    path.write_bytes("".join(f"I have {n % 40} books.\n\r\n é\n" for n in range(1000)).encode())
    named = subprocess.run([*COMMAND, path], stdout=PIPE)
    with path.open("rb") as file:
        piped = subprocess.run([*COMMAND, "-"], stdin=file, stdout=PIPE)
    assert (named.returncode, piped.returncode) == (0, 0)
    assert named.stdout.count(b"\n") == 3000
    assert named.stdout == piped.stdout


@pytest.mark.slow
def test_finished_rows_come_out_while_the_input_pauses():
    with subprocess.Popen([*COMMAND, "-"], stdin=PIPE, stdout=PIPE) as process:
        for sentence, expected in (
            (b"Thank you.\n", b"Merci.\n"),
            (b"Good morning.\n", b"Bonjour.\n"),
        ):
            process.stdin.write(sentence)
            process.stdin.flush()
            assert process.stdout.readline() == expected  # nothing more is coming yet
        start = time.monotonic()
        process.stdin.write(b"See you tomorrow!\n")
        process.stdin.flush()
        assert process.stdout.readline()
        assert time.monotonic() - start < 5
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_head_takes_three_lines_and_the_command_ends_silently(tmp_path, unbuffered):
    path = tmp_path / "big.txt"
    path.write_text("Good morning.\nThank you.\n" * 40_000)
    words = [*COMMAND[:-1], path, "2>errors", "|", "head", "-3", ";", "echo", "${PIPESTATUS[0]}"]
    done = subprocess.run(
        ["bash", "-c", " ".join(map(str, words))],
        stdout=PIPE, cwd=tmp_path, env={**os.environ, **unbuffered}, timeout=120,
    )  # fmt: skip
    assert done.stdout.decode().split("\n") == ["Bonjour.", "Merci.", "Bonjour.", "141", ""]
    (line,) = (tmp_path / "errors").read_text().splitlines()
    assert "small bundled model" in line


@pytest.mark.parametrize("closes", ["2>&-", "2>/dev/full"])
def test_rows_come_out_where_nobody_can_be_told(tmp_path, closes):
    (tmp_path / "in.txt").write_text("Hello.\n\nThank you.\n")
    languages = "--src en --tgt fr"  # not literal, so that there is something to tell
    command = f"{sys.executable} -m nllb_cli translate in.txt {languages} -o out.txt {closes}"
    result = subprocess.run(command, shell=True, cwd=tmp_path, check=False)
    assert result.returncode == 0
    assert (tmp_path / "out.txt").read_text().count("\n") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "options", "names"),
    [
        ("out.txt", [], ["out.txt"]),
        ("out.{tgt}.txt", ["--tgt", "fra_Latn,deu_Latn"], ["out.fra_Latn.txt", "out.deu_Latn.txt"]),
        ("out.{tgt}.txt", ["--status"], ["out.fra_Latn.txt", "out.txt.status"]),
    ],
)
def test_an_interrupted_run_on_a_pipe_says_where_its_rows_are(tmp_path, output, options, names):
    parts = [tmp_path / f"{name}.part" for name in names]
    part = parts[0]
    loud = [word for word in COMMAND if word != "--quiet"]
    command = [*loud, "-", "-o", tmp_path / output, *options]
    with subprocess.Popen(command, stdin=PIPE, stderr=PIPE) as process:
        process.stdin.write(b"Thank you.\n")
        process.stdin.flush()
        while not (part.exists() and part.read_bytes()):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        last = process.stderr.read().splitlines()[-1]
        assert process.wait(30) == 130
    files = " and ".join(map(str, parts))
    assert last == f"nllb: stopped after 1 row, complete in {files}".encode()
