"""A dry run checks everything and writes nothing."""

import pytest

from nllb_cli import cli


def test_it_tells_what_a_run_would_do(tmp_path, capsys):
    path, out = tmp_path / "in.txt", tmp_path / "out.{tgt}.txt"
    path.write_text("Good morning.\n\nThank you.\n")
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr,de", "-o", str(out)]
    assert cli.run([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert f"{path}: 3 rows" in told
    assert "eng_Latn (English) to fra_Latn (French), deu_Latn (German)" in told
    assert "float32" in told
    assert "at the sample's speed" in told
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_rows_that_are_there_are_not_translated_again(tmp_path, capsys):
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"text": "Good morning."}\n' * 3 + "{}\n" * 2)
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", "-o", str(out)]
    assert cli.run(arguments) == 3
    left = (tmp_path / "out.jsonl.part").read_bytes()
    arguments += ["--resume", "--on-error", "keep"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert f"{path}: 5 rows, 3 of them there already, to {out}\n" in told
    assert "at the sample's speed, for the 2 rows left\n" in told
    assert (tmp_path / "out.jsonl.part").read_bytes() == left
    assert cli.run(arguments) == 1
    capsys.readouterr()
    assert cli.run([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert f"{path}: 5 rows, 5 of them there already, to {out}\n" in told
    assert told.endswith("estimate   none: all rows are there already\n")


def test_what_can_be_refused_is(tmp_path, capsys):
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"text": "Good morning."}\n')
    out.write_text("kept")
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", "-o", str(out)]
    assert cli.run([*arguments, "--dry-run"]) in (2, 3)
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "kept"
    arguments = ["translate", str(path), "--format", "lines", "--src", "en", "--tgt", "fr,de"]
    assert cli.run([*arguments, "--dry-run"]) == 2
    assert "several targets need a file each" in capsys.readouterr().err
    assert cli.run([*arguments, "--overwrite", "-o", str(tmp_path / "a.txt.gz")]) == 2
    assert f"-o '{tmp_path}/a.{{tgt}}.txt.gz'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ('{"text": "A house. %s"}' % ("The cat. " * 900), []),
        ('{"text": "A house.", "to": "Klingon"}', ["--tgt-field", "to"]),
        ('{"txt": "A house."}', []),
    ],
)  # fmt: skip
def test_a_row_that_stops_the_run_is_refused_in_the_same_words(tmp_path, capsys, row, options):
    path = tmp_path / "in.jsonl"
    rows = ['{"text": "Good morning."}'] * 2500  # more than the sample of the estimate
    path.write_text("\n".join([*rows, row, "{"]) + "\n")
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", *options, "--quiet"]
    assert cli.run([*arguments, "--dry-run"]) == 3
    told = capsys.readouterr().err
    assert cli.run([*arguments, "--skip", "2500"]) == 3
    assert told == capsys.readouterr().err
    assert f"{path}:2501: " in told


def test_bad_rows_are_told_if_they_do_not_stop_the_run(tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": 7}\n' * 12)
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", "--on-error", "keep"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert f"{path}:10: field 'text' holds a number" in told
    assert f"{path}:11" not in told
    assert "and 2 more" in told


def test_bad_rows_of_the_sample_are_told(tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "Good morning."}\n{"text": 7}\n')
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", "--on-error", "keep"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert f"{path}:2" in capsys.readouterr().out
