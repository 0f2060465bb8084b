"""Only what a vocabulary lacks is replaced, unless more is asked for; nothing else ever changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.pipeline import Translator
from nllb_cli.text.normalize import NORMALIZE, PLAIN, Normalizer

QUOTED = "“Hello,” she said – “it’s…”"


def knows_ascii(text):
    return text.isascii()


@pytest.mark.parametrize("kind", NORMALIZE)
@given(st.text())
def test_a_vocabulary_that_has_everything_leaves_text_alone(kind, text):
    normalized = Normalizer(kind, lambda text: True)(text)
    if kind in ("auto", "off"):
        assert normalized == text
    if text.isascii():
        assert normalized == text


@given(st.text())
def test_what_no_form_of_is_known_stays(text):
    assert Normalizer("auto", lambda text: False)(text).replace(" ", "") == "".join(
        char for char in text if PLAIN.get(char, "x").strip() and char != " "
    )


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (QUOTED, '"Hello," she said - "it\'s..."'),
        ("«Bonjour»", '"Bonjour"'),
        ("„Hallo“", '"Hallo"'),
        ("a\u00a0b\u200bc", "a bc"),
        ("Ａ１！", "A1!"),
        ("ﬁne", "fine"),
        ("é and 中", "é and 中"),
    ],
)
def test_plain_forms(text, plain):
    assert Normalizer("auto", knows_ascii)(text) == plain
    assert Normalizer("off", knows_ascii)(text) == text


def test_plain_replaces_what_the_vocabulary_has():
    assert Normalizer("plain", lambda text: True)("“é”") == '"é"'


def test_letters_and_marks_are_composed_where_that_helps():
    decomposed = "e\u0301"
    assert Normalizer("auto", lambda text: text != "\u0301")(decomposed) == "é"
    assert Normalizer("auto", lambda text: True)(decomposed) == decomposed
    assert Normalizer("nfc", lambda text: True)(decomposed) == "é"


@pytest.fixture(scope="module")
def bundled():
    return Translator().tokenizer


def test_quotes_reach_the_bundled_model(bundled):
    """The reference tokeniser turns what this vocabulary lacks into unknown tokens."""
    text = Normalizer("auto", bundled.knows)(f"{QUOTED} „x“ ‹y›")
    assert bundled.knows(text)
    assert not bundled.knows("„x“ ‹y› ―")


def test_ids_are_the_references_where_nothing_is_unknown(bundled):
    texts = [
        "Où est l’école ?",
        "é",
        "e\u0301",
        "日本語、です。",
        "½ ﬁ ①",
        "«Oui», dit-il – enfin…",
    ]
    known = [text for text in texts if bundled.knows(text)]
    assert len(known) > 2
    normalize = Normalizer("auto", bundled.knows)
    assert bundled.encode([normalize(text) for text in known]) == bundled.encode(known)
