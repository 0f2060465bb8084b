"""How the installed program starts: soon, with little imported, with completion in the shell."""

import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "nllb"
HEAVY = ("torch", "triton", "pyarrow", "numpy", "sentencepiece", "safetensors", "huggingface_hub")
MAX_CPU_S = 0.6
"""Twice the target, as two cores may be shared; importing torch takes four times as much."""


def cpu_seconds(*words):
    """Return what a run of the program takes of a processor, however busy that is."""
    child = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_come_at_once(option):
    assert min(cpu_seconds(option) for _ in range(3)) < MAX_CPU_S


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["translate", "-h"], ["langs", "-h"]])
def test_help_and_version_import_nothing_heavy(words):
    code = (
        "import sys; from nllb_cli.cli import run; code = run(sys.argv[1:])\n"
        f"sys.exit(code or ' '.join(set({HEAVY}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nllb" in done.stdout


def test_a_run_on_a_cpu_does_not_wait_for_triton(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("Good morning.\n")
    code = (
        "import sys; from nllb_cli.cli import run; code = run(sys.argv[1:])\n"
        "sys.exit(code or ' '.join({'triton', 'pyarrow'} & set(sys.modules)) or 0)"
    )
    words = ["translate", str(path), "--src", "eng_Latn", "--tgt", "fra_Latn", "--quiet"]
    words += ["--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Bonjour.\n", "")


def complete(*words):
    environment = {
        **os.environ,
        "_NLLB_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["nllb", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_shell_completes_commands_and_options():
    assert complete("tr") == ["translate"]
    assert "--src-field" in complete("translate", "--sr")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_completion_is_shown(shell):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    words = [PROGRAM, "--show-completion", shell]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "_NLLB_COMPLETE" in done.stdout


def test_every_file_of_the_package_is_installed():
    """A wheel is too slow to build here: the patterns must name what git holds."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = {
        f"{package.replace('.', '/')}/{name}"
        for package, names in tables["package-data"].items()
        for name in names
    }
    files = subprocess.run(
        ["git", "ls-files", "nllb_cli"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not files:
        pytest.skip("not a clone")
    others = [name for name in files if not name.endswith(".py")]
    assert others
    assert [name for name in others if not any(fnmatch(name, p) for p in patterns)] == []
