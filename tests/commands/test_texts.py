"""Odd texts through the whole command and the bundled model: what must come out of them."""

import json
import os
import subprocess
import sys

import pytest

from nllb_cli import Translator, cli


def run(capfd, *arguments):
    """Run the command; return exit code, stdout and stderr."""
    code = cli.run(["translate", *map(str, arguments)])
    captured = capfd.readouterr()
    return int(code), captured.out, captured.err


@pytest.fixture
def lines(tmp_path, capfd):
    def translate(*texts, options=()):
        path = tmp_path / "in.txt"
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="")
        options = ("--src", "eng_Latn", "--tgt", "fra_Latn", "--quiet", *options)
        code, out, _ = run(capfd, path, *options)
        assert code == 0
        return out.split("\n")[:-1]

    return translate


def test_text_after_emoji_is_there_and_emoji_are_kept(lines):
    plain, later = lines("We have milk in the freezer.", "They came by train.")
    emoji = ["😆", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🇫🇷", "3\ufe0f\u20e3"]
    texts = [f"We have milk in the freezer. {sign} They came by train." for sign in emoji]
    assert lines(*texts) == [f"{plain} {sign} {later}" for sign in emoji]
    assert lines("😆", "🇫🇷 👍🏽") == ["😆", "🇫🇷 👍🏽"]


def test_quotes_survive_whatever_they_look_like(lines):
    """The bundled vocabulary has some of them; what it lacks is read as what it has."""
    texts = [f"{a}Hello{b}, she said." for a, b in ('""', "“”", "„“", "«»", "‟‟", "〝〞")]
    straight = lines(texts[0])
    assert "«" in straight[0]
    assert lines(*texts, options=("--normalize", "plain")) == straight * len(texts)
    assert "«" in lines(texts[1])[0]


def test_composed_and_decomposed_letters_are_translated_alike(lines):
    options = ("--src", "fra_Latn", "--tgt", "eng_Latn")
    one, two = lines("L'été est arrivé.", "L'e\u0301te\u0301 est arrive\u0301.", options=options)
    assert one == two
    assert lines(
        "L'e\u0301te\u0301 est arrive\u0301.", options=(*options, "--normalize", "nfc")
    ) == [one]


def test_no_unknown_token_is_printed_and_each_row_tells_how_many_it_has(tmp_path, capfd):
    texts = ["《红楼梦》是一部小说。", "μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος", "Good morning."]
    path, record = tmp_path / "in.jsonl", tmp_path / "run.json"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = ("--src", "eng_Latn", "--tgt", "fra_Latn", "--status", "--record", record)
    code, out, err = run(capfd, path, *options)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert not any(mark in out for mark in ("<unk>", "⁇", "</s>", "<pad>"))
    counts = [int(row["status"].removeprefix("unknown ")) for row in rows[:2]]
    assert min(counts) > 1
    assert rows[2]["status"] == "ok"
    assert json.loads(record.read_text())["tokens"]["unknown"] == sum(counts)
    assert f"{path}:1, {path}:2" in err


@pytest.mark.parametrize(("given", "missing"), [("--src", "--tgt"), ("--tgt", "--src")])
def test_languages_are_not_guessed(tmp_path, capfd, given, missing):
    path = tmp_path / "in.txt"
    path.write_text("Hola.\n")
    code, out, err = run(capfd, path, given, "spa_Latn")
    assert (code, out) == (2, "")
    assert f"{missing} is needed" in err


def test_each_row_goes_into_its_own_language_within_a_batch(tmp_path, capfd):
    """Targets that the model would not choose by itself, mixed."""
    codes = ["fra_Latn", "deu_Latn", "nld_Latn", "spa_Latn", "jpn_Jpan"]
    path = tmp_path / "in.jsonl"
    rows = [{"text": "Where is the train station?", "to": code} for code in codes * 3]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = run(capfd, path, "--src", "eng_Latn", "--tgt-field", "to", "--quiet")
    found = [json.loads(line)["translation"] for line in out.splitlines()]
    translator = Translator()
    expected = [
        next(translator.translate([rows[0]["text"]], "eng_Latn", code)).text for code in codes
    ]
    assert found == expected * 3
    assert len(set(expected)) == len(codes)


def test_spaces_before_punctuation_are_those_of_the_model(lines):
    """French has one before a question mark, German has none: both as the training text had it."""
    assert lines("Where is the train station?")[0].endswith(" ?")
    options = ("--tgt", "deu_Latn")
    assert lines("We live in this street.", options=options)[0].endswith(("e.", "ße."))


def test_output_is_utf8_in_an_ascii_locale(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("Summer is here. 😆\n", encoding="utf-8")
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "nllb_cli", "translate", str(path), "--src", "eng_Latn"]
    result = subprocess.run([*command, "--tgt", "fra_Latn"], env=environment, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert "😆" in result.stdout.decode("utf-8")
    assert "é" in result.stdout.decode("utf-8")
