"""The library door: translations in order, as soon as they are there."""

import pytest

from nllb_cli import Translator
from nllb_cli.errors import InputError, UsageError


@pytest.fixture(scope="module")
def translator():
    found = Translator()
    yield found
    found.close()


def test_one_translation_for_each_text_in_order(translator):
    texts = ["Good morning.", "", None, "  ", "Thank you.", "Good morning."]
    found = list(translator.translate(texts, src="eng_Latn", tgt="fra_Latn", beam=2))
    assert [t.record.index for t in found] == list(range(6))
    assert [t.text for t in found[1:4]] == ["", None, "  "]
    assert found[0].text == found[5].text == "Bonjour."
    assert found[4].text == "Merci."
    assert found[0].score < 0
    assert found[1].score is None


def test_results_come_before_the_input_ends(translator):
    """The generator ends only after the first translation was seen: held back, it would hang."""
    seen = []

    def texts():
        yield "Hello."
        while not seen:
            yield None

    for translation in translator.translate(texts(), src="en", tgt="de"):
        if translation.text:
            seen.append(translation.text)
    assert len(seen) == 1


def test_several_targets(translator):
    targets = ["fra_Latn", "spa_Latn"]
    (found,) = translator.translate(["Thank you."], src="eng_Latn", tgt=targets)
    assert found.texts == (("Merci.",), ("Gracias.",))


def test_wrong_choices_are_refused_before_anything_runs(translator):
    with pytest.raises(UsageError, match="fra_Latn"):
        translator.translate(["a"], src="eng_Latn", tgt="frnch")
    with pytest.raises(UsageError, match="tgt is needed"):
        translator.translate(["a"], src="eng_Latn", tgt=[])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("beam", 0),
        ("early_stopping", "soon"),
        ("max_source_tokens", 5000),
        ("max_target_tokens", 1),
        ("too_long", "leave"),
        ("normalize", "all"),
    ],
)
def test_a_wrong_argument_is_named_as_programs_name_it(translator, argument, value):
    with pytest.raises(UsageError, match=f"^{argument} {value}: choose "):
        translator.translate(["a"], src="en", tgt="fr", **{argument: value})


def test_what_only_looks_like_an_option_stays(translator):
    with pytest.raises(UsageError, match='^language "a--beam"'):
        translator.translate(["a"], src="a--beam", tgt="fr")


def test_a_row_that_is_too_long_is_told_with_an_argument_that_helps(translator):
    found = translator.translate(["a b c d e f"], src="en", tgt="fr", max_source_tokens=3)
    with pytest.raises(InputError, match=r"limit is 3; too_long cut translates its beginning$"):
        list(found)


def test_what_is_no_text_is_refused_by_its_place(translator):
    with pytest.raises(UsageError, match="texts is a str, whose letters"):
        translator.translate("Hello.", src="eng_Latn", tgt="fra_Latn")
    with pytest.raises(InputError, match="row 2: bytes where str or None is wanted"):
        list(translator.translate(["Hello.", b"Hello."], src="eng_Latn", tgt="fra_Latn"))
