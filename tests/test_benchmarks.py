"""Benchmarks are not run here, but what they lack is one line."""

import subprocess
import sys

import pytest

from tests.readme import ROOT

WITHOUT = "import runpy, sys; sys.modules[{!r}] = None; runpy.run_path(sys.argv[1], run_name='x')"


def errors(*words):
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["benchmarks/cpu.py", "{}", "--only", "ours"], "no LANG-LANG.dev.tsv.gz in it, such as"),
        (["benchmarks/engine.py", "--data", "{}"], "no train.en.gz in it, a caption a line"),
    ],
)
def test_a_folder_without_the_data_is_named_with_what_it_must_hold(tmp_path, words, told):
    pytest.importorskip("transformers")
    said = errors(*(word.replace("{}", str(tmp_path)) for word in words))
    assert f"{tmp_path}: {told}" in said
    assert said.count("\n") == 1


def test_without_transformers_the_extra_is_named():
    said = errors("-c", WITHOUT.format("transformers"), "benchmarks/engine.py")
    assert said == "transformers is not installed: pip install -e '.[bench]'\n"
