"""`--overwrite` that ends too early: what it has not replaced is left to `--resume`."""

import shlex
import signal
import subprocess
import sys
import time

import pytest

from nllb_cli import Translator, cli
from nllb_cli.errors import ModelError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three inputs, the first of which takes some time."""
    folder = tmp_path_factory.mktemp("inputs")
    # repeats cost little, and are too many to be read ahead
    texts = [f"I have {n} books and {n + 7} pens." for n in range(600)] + ["See you."] * 30_000
    contents = {
        "a.txt": "".join(f"{text}\n" for text in texts),
        "b.jsonl": '{"text": "Good morning."}\n{"text": "Thank you."}\n',
        "c.txt": "Thank you.\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    return [str(folder / name) for name in contents]


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """Their translations by a run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    assert cli.run(given(files, "fr", folder, "--quiet")) == 0
    return contents(folder)


def given(files, target, folder, *options):
    return ["translate", *files, "--src", "en", "--tgt", target, "--beam", "1",
            "--output-dir", str(folder), *options]  # fmt: skip


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tool(words):
    return [sys.executable, "-m", "nllb_cli", *words]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_what_resume_replaces(files, whole, tmp_path, number):
    out = tmp_path / "out"
    assert cli.run(given(files[1:], "de", out, "--quiet")) == 0
    (out / "a.txt").write_text("old\n")
    old = contents(out)
    command = given(files, "fr", out, "--overwrite")
    with subprocess.Popen(tool(command), stderr=subprocess.PIPE) as process:
        part = out / "a.txt.part"
        deadline = time.monotonic() + 60
        while not part.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        errors = process.stderr.read().decode()
    assert process.returncode in (130, -9), errors
    assert contents(out).items() >= old.items()
    refused = subprocess.run(tool(given(files, "fr", out)), stderr=subprocess.PIPE)
    assert refused.returncode == 2
    assert b"a.txt: an interrupted run has begun it; --resume continues it, " in refused.stderr
    words = shlex.join(["nllb", *given(files, "fr", out, "--resume")])
    if number == signal.SIGINT:
        words = errors.rpartition("this continues: ")[2]
    resumed = subprocess.run(tool(shlex.split(words)[1:]), stderr=subprocess.PIPE)
    assert resumed.returncode == 0
    assert b"complete already" not in resumed.stderr
    assert contents(out) == whole


@pytest.mark.parametrize("options", [[], ["--record", "{}/run.json"]])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ModelError("too large")])
def test_a_model_that_is_not_loaded_leaves_what_resume_replaces(
    files, tmp_path, monkeypatch, capsys, options, error
):
    whole, out = tmp_path / "whole", tmp_path / "out"
    options = [option.format(tmp_path) for option in options]
    assert cli.run(given(files[1:], "fr", whole)) == 0
    assert cli.run(given(files[1:], "de", out, *options)) == 0
    old = contents(out)

    def fail(*arguments):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "load", fail)
        assert cli.run(given(files[1:], "fr", out, *options, "--overwrite")) in (4, 130)
    assert contents(out).items() >= old.items()
    capsys.readouterr()
    assert cli.run(given(files[1:], "fr", out, *options)) == 2
    assert "b.jsonl: an interrupted run has begun it" in capsys.readouterr().err
    assert cli.run(given(files[1:], "fr", out, *options, "--resume")) == 0
    assert contents(out) == contents(whole)
    assert cli.run(given(files[1:], "fr", out, *options, "--resume")) == 0
    assert "complete already" in capsys.readouterr().err


def test_another_run_with_overwrite_starts_again(files, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert cli.run(given(files[1:], "fr", whole)) == 0
    assert cli.run(given(files[1:], "de", out)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "load", None)
        with pytest.raises(TypeError):
            cli.run(given(files[1:], "de", out, "--overwrite"))
    assert cli.run(given(files[1:], "fr", out, "--overwrite")) == 0
    assert contents(out) == contents(whole)


def test_rows_that_are_kept_need_not_be_those_of_what_was_not_begun(tmp_path):
    """Nothing was met in the others, so that they go with the remedy for the first."""
    bad, good, out = tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "out"
    bad.write_text('{"text": "Good morning."}\n{"text": 7}\n')
    good.write_text("text\nThank you.\n")
    out.mkdir()
    for path in (bad, good):
        (out / path.name).write_text("old\n")
    files = [str(bad), str(good)]
    assert cli.run(given(files, "fr", out, "--overwrite")) == 3
    assert cli.run(given(files, "fr", out, "--resume", "--on-error", "keep")) == 1
    assert (out / "b.csv").read_text() == "text,translation,translation_error\nThank you.,Merci.,\n"
