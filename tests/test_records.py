"""What flows through the program."""

from nllb_cli.records import Hypothesis, Record, Segment, Translation


def test_the_first_text_and_score_are_at_hand():
    record = Record(3, ("a", None), "eng_Latn", ("fra_Latn", "deu_Latn"))
    translation = Translation(record, (("b", None), ("c", None)), ((-1.0, None), (-2.0, None)))
    assert (translation.text, translation.score) == ("b", -1.0)


def test_rows_with_equal_content_stay_two_rows():
    """Records and segments are keys by what they are, not by what they hold: repeats are rows."""
    rows = [Record(0, ("a",), "eng_Latn", ("fra_Latn",)) for _ in range(2)]
    segments = [Segment(row, 0, 0, 1, [5, 2], (9,), 60) for row in rows]
    assert len(set(rows)) == len(set(segments)) == 2
    assert rows[0] != rows[1]
    assert segments[0].twins is segments[1].twins is None


def test_hypotheses_compare_by_content():
    assert Hypothesis([1], -1.0, "eos") == Hypothesis([1], -1.0, "eos")
