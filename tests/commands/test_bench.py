"""The command prints a table or JSON on stdout, and everything else on stderr."""

import json

from nllb_cli import cli


def test_the_table_says_what_was_measured(capsys):
    assert cli.run(["bench", "--lines", "5", "--beam", "1", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    lines = {line[:12].strip(): line[12:].strip() for line in out.splitlines()}
    assert lines["search"] == "eng_Latn to fra_Latn, beam 1"
    assert "rows/s" in lines["rate"]
    assert "tokens/s" in lines["rate"]
    assert lines["device"].endswith("float32")
    assert "5 lines" in lines
    assert lines["time"].startswith("encode ")
    assert all(line == line.rstrip() for line in out.splitlines())
    assert "bundled model" in err


def test_json_is_one_object(capsys):
    words = ["bench", "--lines", "4", "--beam", "2", "--device", "cpu", "--tgt", "nl", "--json"]
    assert cli.run(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["lines"], report["beam"], report["target_lang"]) == (4, 2, "nld_Latn")
    assert report["tokens_per_s"] > 0


def test_mistakes_are_one_line(capsys):
    assert cli.run(["bench", "--beam", "99"]) == 2
    assert cli.run(["bench", "--device", "cuda:99"]) in (2, 5)
    assert cli.run(["bench", "--lines", "20000", "--device", "cpu"]) == 2
    assert cli.run(["bench", "--model", "no/such/dir/at/all"]) in (2, 4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("nllb: ") for line in lines)
