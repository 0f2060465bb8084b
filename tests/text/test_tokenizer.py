"""Text to ids and back."""

from pathlib import Path

import pytest

from nllb_cli.errors import UsageError
from nllb_cli.text.tokenizer import load_tokenizer

BUNDLED = Path(__file__).parents[2] / "nllb_cli" / "demo_model"


@pytest.fixture(scope="module")
def bundled():
    return load_tokenizer(BUNDLED)


def test_bundled_model_describes_itself(bundled):
    assert bundled.family == "nllb"
    assert bundled.languages == {
        "deu_Latn": 15993,
        "eng_Latn": 15994,
        "fra_Latn": 15995,
        "jpn_Jpan": 15996,
        "nld_Latn": 15997,
        "spa_Latn": 15998,
    }
    assert bundled.size == 16000
    assert not bundled.is_legacy
    assert bundled.notes == ()


def test_source_has_the_language_first_and_the_end_last(bundled):
    (pieces,) = bundled.encode(["Guten Tag!"])
    assert bundled.source(pieces, "deu_Latn") == [15993, *pieces, 2]
    legacy = load_tokenizer(BUNDLED, is_legacy=True)
    assert legacy.source(pieces, "deu_Latn") == [*pieces, 2, 15993]
    assert "source language" in legacy.notes[0]
    with pytest.raises(UsageError, match="ita_Latn"):
        bundled.source(pieces, "ita_Latn")
