"""The table of languages."""

import json

from nllb_cli import cli


def languages(capsys, *arguments):
    assert cli.run(["langs", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_bundled_models_languages(capsys):
    found = languages(capsys)
    assert [item["id"] for item in found] == list(range(15993, 15999))
    assert found[2] == {"code": "fra_Latn", "name": "French", "script": "Latin", "id": 15995}


def test_a_filter_by_word_or_script(capsys):
    assert [item["code"] for item in languages(capsys, "french")] == ["fra_Latn"]
    assert [item["code"] for item in languages(capsys, "Japanese")] == ["jpn_Jpan"]


def test_the_table_names_each(capsys):
    assert cli.run(["langs"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 6
    assert out[0].split()[:2] == ["deu_Latn", "German"]


def test_a_word_that_nothing_has_is_told(capsys):
    assert cli.run(["langs", "klingon"]) == 2
    assert "'klingon'" in capsys.readouterr().err
