"""One run, from choices to exit code: what it writes, records, logs and returns."""

import json
import signal
import subprocess
import sys
import time

import pytest

from nllb_cli import Translator, cli
from nllb_cli.errors import InputError
from nllb_cli.io.row_files import RowSink
from tests.readme import ROOT


def translate(*arguments):
    command = ["translate", "--src", "eng_Latn", "--tgt", "fra_Latn"]
    return int(cli.run([*command, *(str(argument) for argument in arguments)]))


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "in.jsonl"
    texts = ["Good morning.", "", 7, None, "Good morning."]
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)))
    return path


def test_the_first_bad_row_ends_a_run_with_its_place(rows, tmp_path, capsys):
    assert translate(rows, "-o", tmp_path / "out.jsonl") == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{rows}:3" in last
    assert "--on-error keep" in last
    assert not (tmp_path / "out.jsonl").exists()


def test_kept_bad_rows_are_marked_counted_and_recorded(rows, tmp_path, capsys):
    out, record, log = (tmp_path / name for name in ("out.jsonl", "run.json", "log.jsonl"))
    options = ["--on-error", "keep", "--status", "--record", record, "--log-json", log]
    assert translate(rows, "-o", out, *options) == 1
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in found] == list(range(5))
    assert [row["translation"] for row in found] == ["Bonjour.", "", "", None, "Bonjour."]
    assert [row["status"] for row in found][1:4] == ["blank", "failed", "blank"]
    assert found[2]["text"] == 7
    kept = json.loads(record.read_text())
    assert json.dumps(kept).count("failed")
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "start"
    assert events[-1] == "end"
    assert "bad row" in events
    summary = capsys.readouterr().err.splitlines()[-5:]
    assert summary[0].startswith("nllb: 5 rows in ")
    assert [line.split()[1:] for line in summary[1:]] == [
        ["blank", "2"],
        ["repeated", "1"],
        ["ok", "1"],
        ["failed", "1", f"{rows}:3"],
    ]


@pytest.mark.parametrize(("on_error", "code"), [("fail", 3), ("keep", 1)])
def test_a_row_that_is_too_long_is_told_and_no_row_is_missing(tmp_path, capsys, on_error, code):
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = ["Good morning.", "Thank you.", ""] * 1000
    lines[580] = "a very long line " * 20
    path.write_text("\n".join(lines) + "\n")
    options = ["--max-source-tokens", "60", "--on-error", on_error, "-o", out, "--beam", "1"]
    assert translate(path, *options) == code
    said = capsys.readouterr().err.splitlines()
    assert any(line.startswith(f"nllb: {path}:581: the source has ") for line in said)
    expected = ["Bonjour.", "Merci.", ""] * 1000
    if on_error == "fail":
        assert (tmp_path / "out.txt.part").read_text().split("\n")[:-1] == expected[:580]
        return
    expected[580] = ""
    assert out.read_text().split("\n")[:-1] == expected
    assert said[-1].split() == ["nllb:", "failed", "1", f"{path}:581"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "--tgt is needed"),
        (["--tgt", "fr,fr"], "--tgt fr,fr: a language is named twice"),
        (["--tgt", "fr", "--field", "body"], "--field: lines have no fields"),
        (["--tgt", "fr", "{more}", "-o", "out.txt"], "-o out.txt: there are 2 inputs"),
        (["--tgt", "fr", "-o", "out.txt", "--output-dir", "out"], "choose one of them"),
        (["--tgt", "fr", "--record", "absent/run.json"], "--record absent/run.json: cannot be"),
        (["--tgt", "fr", "absent.txt"], "absent.txt: no such file"),
    ],
)
def test_what_needs_no_model_is_told_before_it_is_looked_up(tmp_path, capsys, options, told):
    for name in ("in.txt", "more.txt"):
        (tmp_path / name).write_text("Good morning.\n")
    options = [option.replace("{more}", str(tmp_path / "more.txt")) for option in options]
    command = ["translate", str(tmp_path / "in.txt"), "--src", "en", *options]
    assert cli.run([*command, "--model", str(tmp_path / "absent")]) in (2, 3)
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("input", "options", "told"),
    [
        ("samples/reviews.parquet", [], "Parquet cannot go to stdout"),
        ("samples/sentences.txt", ["--tgt", "fr,de"], "several targets need a file each"),
        ("samples/sentences.txt", ["--tgt", "fr,de", "-o", "{out}.txt"], "a file each"),
        ("samples/sentences.txt", ["--status"], "stdout takes one target"),
        ("samples/sentences.txt", ["--resume"], "--resume: stdout cannot be resumed"),
        ("samples/phrases.csv", ["-o", "{out}.jsonl"], "another suffix than .jsonl"),
        ("samples/messages.jsonl", ["--tgt", "fr,de", "--output-field", "t"], "{tgt} in the"),
    ],
)
def test_what_needs_no_weights_is_told_in_one_line_before_they_are_loaded(
    tmp_path, capsys, monkeypatch, input, options, told
):
    monkeypatch.setattr(Translator, "load", None)
    options = [option.replace("{out}", str(tmp_path / "out")) for option in options]
    assert translate(ROOT / input, *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert not list(tmp_path.iterdir())


def test_a_shard_is_resumed_as_other_runs_are(tmp_path, capsys):
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"text": "Good morning."}\n{"text": 7}\n' * 2)
    options = ["-o", out, "--shard", "1/2"]
    assert translate(path, *options) == 3
    assert translate(path, *options, "--resume") == 3
    assert (
        f"nllb: {path}:2: field 'text' holds a number" in capsys.readouterr().err.splitlines()[-1]
    )


def test_a_run_that_is_another_is_refused_in_one_line_before_weights_are_loaded(
    rows, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out.jsonl"
    assert translate(rows, "-o", out) == 3  # a bad row leaves a part
    capsys.readouterr()
    monkeypatch.setattr(Translator, "load", None)
    assert translate(rows, "-o", out, "--resume", "--beam", "2") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nllb: {out}.part.json: belongs to another run (")


def test_an_existing_output_is_not_overwritten_unasked(tmp_path, capsys):
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("Good morning.\n")
    out.write_text("kept\n")
    assert translate(path, "-o", out) != 0
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "kept\n"
    assert translate(path, "-o", out, "--overwrite") == 0
    assert out.read_text() == "Bonjour.\n"


def test_resume_of_a_complete_output_does_nothing_and_says_so(tmp_path, capsys, monkeypatch):
    path, out, record = (tmp_path / name for name in ("in.txt", "out.txt", "run.json"))
    path.write_text("Good morning.\n")
    given = [path, "-o", out, "--resume"]
    assert translate(*given, "--record", record) == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "load", None)  # it is not needed
        assert translate(*given, "--tgt", "nld_Latn") == 0
        said = capsys.readouterr().err
        made = "whatever options it was made with"
        assert f"nllb: {out}: complete already, left as it is {made}; --overwrite" in said
        assert translate(*given, "--record", record) == 0
        said = capsys.readouterr().err
        assert f"nllb: {out}: complete already, left as it is; --overwrite" in said
        assert translate(*given, "--record", record, "--beam", "1") == 2
        assert "(--beam was 4, now is 1)" in capsys.readouterr().err
    more = tmp_path / "more.txt"
    more.write_text("Thank you.\n")
    folder = tmp_path / "out"
    assert translate(path, "--output-dir", folder) == 0
    assert translate(path, more, "--output-dir", folder, "--resume") == 0
    assert f"{folder}/in.txt: complete already" in capsys.readouterr().err
    assert (folder / "more.txt").read_text() == "Merci.\n"


def test_the_record_is_that_of_the_last_run_that_began(rows, tmp_path, capsys, monkeypatch):
    out, record = tmp_path / "out.jsonl", tmp_path / "run.json"
    given = [rows, "-o", out, "--record", record, "--limit", "2"]

    def told():
        found = json.loads(record.read_text())
        return found["exit_code"], found["error"], found["rows"]["written"]

    assert translate(*given) == 0
    assert told() == (0, None, 2)
    assert translate(*given) == 2  # it has not begun
    assert told() == (0, None, 2)
    assert translate(*given[:-1], "5", "--overwrite") == 3
    code, error, written = told()
    assert (code, written) == (3, 2)
    assert error.startswith(f"{rows}:3: ")
    seen = []

    def load(*arguments):
        seen.append(told())
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "load", load)
    assert translate(*given, "--overwrite") == 130
    assert seen == [(None, None, 0)]
    assert told() == (130, "KeyboardInterrupt", 0)


def test_an_interrupt_while_a_resumed_run_loads_the_model_says_how_to_continue(
    rows, tmp_path, capsys, monkeypatch
):
    def load(*_):
        raise KeyboardInterrupt

    given = [rows, "-o", tmp_path / "out.jsonl"]
    assert translate(*given) == 3
    monkeypatch.setattr(Translator, "load", load)
    for options, count in (["--overwrite"], 0), (["--resume"], 1), (["--resume", "--quiet"], 0):
        capsys.readouterr()
        assert translate(*given, *options) == 130
        assert capsys.readouterr().err.count("nllb: stopped; this continues: ") == count


def test_bad_rows_from_before_a_resume_count(rows, tmp_path, capsys, monkeypatch):
    out, record = tmp_path / "out.jsonl", tmp_path / "run.json"
    given = [rows, "-o", out, "--on-error", "keep", "--record", record]
    finish = RowSink.finish

    def fail(sink):
        raise InputError("no more")

    monkeypatch.setattr(RowSink, "finish", fail)
    assert translate(*given) == 3
    monkeypatch.setattr(RowSink, "finish", finish)
    capsys.readouterr()
    assert translate(*given, "--resume") == 1
    assert "nllb: 0 rows, 5 more from before (2 blank, 1 repeated, 1 failed)" in (
        capsys.readouterr().err.splitlines()
    )
    assert json.loads(record.read_text())["before"]["failed"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_what_resume_continues(tmp_path, number, code):
    path, whole, out = (tmp_path / name for name in ("in.txt", "whole.txt", "out.txt"))
    path.write_text("".join(f"I have {n} books and {n + 7} pens.\n" for n in range(1500)))
    command = [sys.executable, "-m", "nllb_cli", "translate", str(path), "--src", "eng_Latn"]
    command += ["--tgt", "fra_Latn", "--beam", "1"]
    assert subprocess.run([*command, "-o", str(whole)], stderr=subprocess.PIPE).returncode == 0
    with subprocess.Popen([*command, "-o", str(out)], stderr=subprocess.PIPE) as process:
        part = tmp_path / "out.txt.part"
        deadline = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        errors = process.stderr.read().decode()
        assert process.wait(60) == code
    assert "\nnllb: finishing what is in flight; " in errors
    assert "\nnllb: stopped; this continues: " in errors
    assert not out.exists()
    resumed = subprocess.run([*command, "-o", str(out), "--resume"], stderr=subprocess.PIPE)
    assert resumed.returncode == 0
    assert out.read_bytes() == whole.read_bytes()
