import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.errors import UsageError
from nllb_cli.records import Hypothesis, Record
from nllb_cli.text.scripts import Scripts
from nllb_cli.text.segments import SplitRules, Splitter, deliver, join
from tests.conftest import ByteTokenizer

FRENCH, BOTH = ("fra_Latn",), ("fra_Latn", "deu_Latn")


def split(*records, **rules):
    return Splitter(ByteTokenizer(), SplitRules(**rules)).split(records)


def run(*records, finish="eos", **rules):
    """Records through split, an engine that gives sources back, and join."""
    rows = split(*records, **rules)
    segments = [segment for row in rows for segment in row.segments]
    results = [
        (s, tuple(Hypothesis(s.source_tokens[1:-1], -n, finish) for n in range(len(s.target_ids))))
        for s in segments
    ]
    deliver(results[::-1], ByteTokenizer(), Scripts(ByteTokenizer.languages))
    assert all(row.num_waiting == 0 for row in rows)
    return [join(row) for row in rows]


def test_one_text_is_one_segment():
    (row,) = split(Record(0, ("Hello.",), "eng_Latn", FRENCH))
    (segment,) = row.segments
    assert segment.source_tokens == [300, *[b + 4 for b in b"Hello."], 2]
    assert segment.target_ids == (301,)
    assert segment.max_target_tokens == 2 * 6 + 50
    assert row.num_waiting == 1


@given(st.lists(st.lists(st.one_of(st.none(), st.text(), st.sampled_from(["", " ", "\t\u3000"])),
                         min_size=2, max_size=2)))  # fmt: skip
def test_texts_come_back_to_their_places(table):
    records = [Record(i, tuple(texts), "eng_Latn", BOTH) for i, texts in enumerate(table)]
    translations = run(*records)
    assert [t.texts for t in translations] == [(tuple(texts),) * 2 for texts in table]


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000\xa0\u2028", None])
def test_blank_texts_are_no_segments_and_stay_as_they_are(text):
    record = Record(0, (text,), "eng_Latn", BOTH)
    assert split(record)[0].segments == ()
    (translation,) = run(record)
    assert translation.texts == ((text,), (text,))
    assert translation.scores == ((None,), (None,))
    assert translation.status == "blank"


def test_text_without_pieces_stays_as_it_is():
    class Deaf(ByteTokenizer):
        def encode(self, texts, source_lang):
            return [[300, 2] for _ in texts]

    (row,) = Splitter(Deaf(), SplitRules()).split([Record(0, ("\u200b",), "eng_Latn", FRENCH)])
    assert row.num_waiting == 0
    assert join(row).texts == (("\u200b",),)


def test_scores_stand_beside_their_texts():
    (translation,) = run(Record(0, ("a", None), "eng_Latn", BOTH))
    assert translation.scores == ((0, None), (-1, None))


def test_limit_counts_pieces_without_specials():
    record = Record(0, ("x" * 10,), "eng_Latn", FRENCH)
    assert split(record, max_source_tokens=10)[0].error is None
    error = split(record, max_source_tokens=9)[0].error
    assert error.startswith("the source has 10 tokens and the limit is 9; --too-long cut")


def test_cut_keeps_the_beginning_and_says_so():
    (translation,) = run(
        Record(0, ("0123456789",), "eng_Latn", FRENCH), max_source_tokens=4, too_long="cut"
    )
    assert translation.texts == (("0123",),)
    assert translation.status == "cut"


def test_a_failed_text_fails_its_row_and_leaves_nulls():
    record = Record(0, ("short", "far too long", None), "eng_Latn", BOTH)
    (translation,) = run(record, max_source_tokens=6)
    assert translation.texts == (("", "", None),) * 2
    assert translation.status == "failed"
    assert "12 tokens" in translation.error


def test_error_of_the_reader_stays():
    (translation,) = run(Record(0, ("x",), "eng_Latn", FRENCH, error="invalid UTF-8"))
    assert (translation.texts, translation.error) == ((("",),), "invalid UTF-8")


def test_languages_of_rows_are_resolved_and_mixed():
    records = [
        Record(0, ("a",), "English", ("fr",)),
        Record(1, ("b",), "fra_Latn", ("de",)),
        Record(2, ("c",), "klingon", ("de",)),
        Record(3, ("d",), "eng_Latn", ("klingon",)),
    ]
    rows = split(*records)
    assert [[s.source_tokens[0] for s in row.segments] for row in rows] == [[300], [301], [], []]
    assert [[s.target_ids for s in row.segments] for row in rows] == [[(301,)], [(302,)], [], []]
    assert all('language "klingon" is not in this model' in row.error for row in rows[2:])


def test_status_is_the_worst_of_the_texts():
    (translation,) = run(Record(0, ("", "a"), "eng_Latn", FRENCH))
    assert translation.status == "ok"
    (translation,) = run(Record(0, ("", "a"), "eng_Latn", FRENCH), finish="length")
    assert translation.status == "limit"


def test_scores_that_are_not_finite_fail_the_row():
    (translation,) = run(Record(0, ("a",), "eng_Latn", FRENCH), finish="invalid")
    assert translation.status == "failed"
    assert "--dtype float32" in translation.error


def test_twins_share_a_result_even_if_the_first_row_failed():
    rows = split(*[Record(i, ("a", f"{i}"), "eng_Latn", FRENCH) for i in range(3)])
    first, second, third = (row.segments for row in rows)
    first[0].twins = [second[0], third[0]]
    for segment in (second[0], third[0]):
        segment.is_repeated = True
    rows[0].fail("its other text is bad")
    results = [(first[0], (Hypothesis([69], -1.0, "eos"),))]
    results += [(s[1], (Hypothesis([70], -1.0, "eos"),)) for s in (second, third)]
    deliver(results, ByteTokenizer(), Scripts(ByteTokenizer.languages))
    assert [join(row).texts for row in rows] == [(("", ""),), (("A", "B"),), (("A", "B"),)]
    assert [join(row).status for row in rows] == ["failed", "ok", "ok"]


def test_emoji_stay_and_the_words_between_are_translated():
    """The engine gives sources back, so that a text out of parts is the text."""
    text = "Yes, all in the freezer 😆 They came by van. 🇫🇷"
    record = Record(0, (text, "whole"), "eng_Latn", BOTH)
    (row,) = split(record)
    assert [s.part for s in row.segments] == [0, 2, 0]
    assert [s.num_parts for s in row.segments] == [5, 5, 1]
    (translation,) = run(record)
    assert translation.texts == ((text, "whole"),) * 2
    assert translation.status == "ok"
    assert translation.scores[1] == (-1, -1)


@pytest.mark.parametrize("text", ["😆", "👍🏽 👍🏽!", " 🇫🇷 "])
def test_a_text_of_emoji_alone_is_copied(text):
    record = Record(0, (text,), "eng_Latn", BOTH)
    assert split(record)[0].segments == ()
    (translation,) = run(record)
    assert translation.texts == ((text,),) * 2
    assert translation.status == "copied"


def test_emoji_may_go_to_the_model():
    assert len(split(Record(0, ("a 😆 b",), "eng_Latn", FRENCH), emoji="model")[0].segments) == 1


def test_a_part_that_fails_fails_the_row():
    (translation,) = run(Record(0, ("a 😆 b",), "eng_Latn", FRENCH), finish="invalid")
    assert translation.texts == (("",),)
    assert translation.status == "failed"


def test_a_part_that_is_too_long_fails_the_row():
    record = Record(0, ("a 😆 " + "b" * 20,), "eng_Latn", FRENCH)
    (translation,) = run(record, max_source_tokens=6)
    assert translation.status == "failed"
    assert "20 tokens" in translation.error


class Narrow(ByteTokenizer):
    """Lacks all that is not ASCII."""

    def knows(self, text):
        return text.isascii()

    def encode(self, texts, source_lang):
        whole = super().encode(
            ["".join(c if c.isascii() else "\x01" for c in t) for t in texts], source_lang
        )
        return [[3 if token == 5 else token for token in tokens] for tokens in whole]


def test_unknown_tokens_are_counted_by_row():
    records = [
        Record(i, (text,), "eng_Latn", FRENCH) for i, text in enumerate(["ab", "中a文", "“x”"])
    ]
    rows = Splitter(Narrow(), SplitRules()).split(records)
    assert [(row.num_unknown, row.status) for row in rows] == [
        (0, "blank"), (2, "unknown 2"), (0, "blank")
    ]  # fmt: skip
    rows = Splitter(Narrow(), SplitRules(normalize="off")).split(records)
    assert [row.num_unknown for row in rows] == [0, 2, 2]


def test_a_translation_in_another_script_is_marked():
    (translation,) = run(Record(0, ("Встреча в пять часов.",), "eng_Latn", FRENCH))
    assert translation.status == "script"
    assert translation.texts == (("Встреча в пять часов.",),)


@pytest.mark.parametrize("rules", [{"normalize": "nfd"}, {"emoji": "drop"}])
def test_rules_are_refused_by_name(rules):
    ((name, value),) = rules.items()
    with pytest.raises(UsageError, match=f"--{name} {value}: choose "):
        SplitRules(**rules)
