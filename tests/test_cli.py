"""The terminal's edge: exit codes, and one line for whatever a person can mend."""

import subprocess
import sys

import pytest
import torch

from nllb_cli import __version__, cli

COMMAND = [sys.executable, "-m", "nllb_cli"]


def run(arguments, capsys):
    """Run a command line in this process; return its code and its lines on stderr."""
    code = cli.run([str(argument) for argument in arguments])
    return int(code), capsys.readouterr().err.splitlines()


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"nllb {__version__}\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("Hello.\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["trnslate"], 2, ["No such command", "nllb --help"]),
        ([], 2, ["nllb: a command is needed"]),
        (["translate", "{text}", "--src", "eng_Latn"], 2, ["--tgt"]),
        (
            ["translate", "{text}", "--src", "eng_Latn", "--tgt", "fra_Latn", "--beam", "0"],
            2,
            ["--beam 0"],
        ),
        (["translate", "{text}", "--src", "eng_Latn", "--tgt", "frnch"], 2, ["frnch", "fra_Latn"]),
        (
            ["translate", "{text}", "--src", "eng_Latn", "--tgt", "swh_Latn"],
            2,
            ["swh_Latn", "jpn_Jpan", "--model"],
        ),
        (["translate", "--src", "eng_Latn", "--tgt", "fra_Latn"], 2, ["INPUT is needed", "- for"]),
        (["translate", "absent.txt", "--src", "eng_Latn", "--tgt", "fra_Latn"], 3, ["absent.txt"]),
        (
            ["translate", "{text}", "--src", "eng_Latn", "--tgt", "fra_Latn", "--model", "{text}"],
            4,
            ["in.txt"],
        ),
    ],
)
def test_a_mistake_is_one_line_and_a_code(text, capsys, arguments, code, words):
    arguments = [argument.replace("{text}", str(text)) for argument in arguments]
    found, lines = run(arguments, capsys)
    assert found == code
    assert len(lines) == 1
    assert lines[0].startswith("nllb: ")
    assert all(word in lines[0] for word in words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_device_that_is_absent_is_no_silent_cpu_run(text, capsys):
    arguments = ["translate", text, "--src", "eng_Latn", "--tgt", "fra_Latn", "--device", "cuda"]
    code, lines = run(arguments, capsys)
    assert code == 5
    assert "cuda" in lines[-1]


def test_a_closed_pipe_ends_silently(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("Hello.\nGood morning.\n" * 20000)  # repeats: quick, and more than a pipe holds
    arguments = [*COMMAND, "translate", path, "--src", "eng_Latn", "--tgt", "fra_Latn", "--quiet"]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe) as process:
        assert process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 141
    assert errors == b""


def test_utf_8_whatever_the_locale(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("Where is the station?\n")
    arguments = [*COMMAND, "translate", path, "--src", "eng_Latn", "--tgt", "jpn_Jpan", "--quiet"]
    environment = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    result = subprocess.run(arguments, capture_output=True, env=environment, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "駅" in result.stdout.decode("utf-8")


def test_a_closed_stdout_is_one_line(text):
    """As `nllb … >&-` in a shell; Python then has no stdout at all."""
    arguments = f"translate {text} --src eng_Latn --tgt fra_Latn --quiet"
    command = f"exec {sys.executable} -m nllb_cli {arguments} >&-"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert "stdout: cannot be written" in result.stderr


def test_a_record_that_cannot_be_written_is_told_before_the_run(text, tmp_path, capsys):
    arguments = ["translate", text, "--src", "eng_Latn", "--tgt", "fra_Latn", "--record"]
    for path in (tmp_path, tmp_path / "no" / "run.json"):
        code, lines = run([*arguments, path, "--output", tmp_path / "out.txt"], capsys)
        assert code == 3
        assert f"--record {path}: cannot be written" in lines[-1]
        assert not list(tmp_path.glob("out*"))
