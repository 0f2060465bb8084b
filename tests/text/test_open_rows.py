"""Where a row stands, and what it is told to be."""

import pytest

from nllb_cli.records import Record
from nllb_cli.text.open_rows import FAILED, MARKS, OK, UNKNOWN, OpenRow, Parts, place

RECORD = Record(6, ("a",), "eng_Latn", ("fra_Latn",))


def test_place_names_input_and_row():
    class Input:
        def place(self, index):
            return f"a.csv: row {index + 1}"

    assert place(Record(6, ("a",), "eng_Latn", ("fra_Latn",), input=Input())) == "a.csv: row 7"
    assert place(RECORD) == "row 7"


def test_marks_go_from_best_to_worst():
    assert (
        *("blank", "copied", "repeated", "ok"),
        *("unknown", "script", "limit", "cut", "failed"),
    ) == MARKS
    assert (MARKS[OK], MARKS[UNKNOWN], MARKS[FAILED]) == ("ok", "unknown", "failed")


@pytest.mark.parametrize(("mark", "status"), [(OK, "ok"), (UNKNOWN, "unknown 2")])
def test_a_status_counts_what_is_unknown(mark, status):
    assert OpenRow(RECORD, mark=mark, num_unknown=2).status == status


def test_a_failed_row_waits_for_nothing_and_keeps_its_first_error():
    row = OpenRow(RECORD, num_waiting=2)
    row.fail("one")
    row.fail("two", ends_run=False)
    assert (row.num_waiting, row.segments, row.error, row.status) == (0, (), "one", "failed")


def test_parts_join_to_a_text_with_the_score_of_the_worst():
    parts = Parts(["a", " x ", "b", "y", "."])
    parts.finished = {0: (("A", "1"), (-1.0, -3.0)), 2: (("B", "2"), (-2.0, -0.5))}
    assert parts.joined(2) == (("A x By.", "1 x 2y."), (-2.0, -3.0))
