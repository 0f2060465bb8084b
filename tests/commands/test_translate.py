"""The command's options reach the run."""

import json

from nllb_cli import cli


def run(capfd, *arguments):
    code = cli.run(["translate", *map(str, arguments), "--quiet"])
    shown = capfd.readouterr()
    assert shown.err == ""
    return int(code), shown.out


def test_lines_go_to_stdout_and_quiet_says_nothing(tmp_path, capfd):
    path = tmp_path / "in.txt"
    path.write_text("Good morning.\n\nThank you.")
    code, out = run(capfd, path, "--src", "eng_Latn", "--tgt", "fra_Latn")
    assert (code, out) == (0, "Bonjour.\n\nMerci.")


def test_a_language_into_itself_is_said_once(tmp_path, capfd):
    source = tmp_path / "in.txt"
    source.write_text("Hello.\n")
    assert cli.run(["translate", str(source), "--src", "en", "--tgt", "en"]) == 0
    told = capfd.readouterr().err
    assert told.count("language en is eng_Latn") == 1
    assert told.count("--src and --tgt are both eng_Latn") == 1


def test_slices_and_shards(tmp_path, capfd):
    path = tmp_path / "in.txt"
    path.write_text("One.\n\n\nThank you.\n\n")
    options = ("--src", "eng_Latn", "--tgt", "fra_Latn")
    assert run(capfd, path, *options, "--skip", 3, "--limit", 1) == (0, "Merci.\n")
    whole = run(capfd, path, *options)[1]
    shards = [run(capfd, path, *options, "--shard", f"{i}/3")[1] for i in (1, 2, 3)]
    assert "".join(shards) == whole


def test_rows_that_are_all_skipped_are_told(tmp_path, capfd):
    path = tmp_path / "in.txt"
    path.write_text("Hello.\n")
    assert cli.run(["translate", str(path), "--src", "en", "--tgt", "fr", "--skip", "5"]) == 0
    shown = capfd.readouterr()
    assert shown.out == ""
    assert f"nllb: {path}: has 1 row, and --skip 5 leaves all out\n" in shown.err


def test_targets_and_fields_of_each_row(tmp_path, capfd):
    path = tmp_path / "in.jsonl"
    path.write_text('{"t": "Thank you.", "to": "spa_Latn"}\n{"t": "Thank you."}\n')
    options = ("--src", "eng_Latn", "--tgt", "fra_Latn", "--tgt-field", "to", "--field", "t")
    code, out = run(capfd, path, *options, "--output-field", "out")
    assert code == 0
    assert [json.loads(line)["out"] for line in out.splitlines()] == ["Gracias.", "Merci."]
