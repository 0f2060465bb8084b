"""A dry run checks everything and writes nothing."""

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


def test_bad_rows_of_the_sample_are_told(tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "Good morning."}\n{"text": 7}\n')
    arguments = ["translate", str(path), "--src", "en", "--tgt", "fr", "--on-error", "keep"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert f"{path}:2" in capsys.readouterr().out
