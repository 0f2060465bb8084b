import pytest

from nllb_cli.options import BLOCK_ROWS
from nllb_cli.records import Record
from nllb_cli.text.buckets import Limits, Window, bucketed
from nllb_cli.text.segments import SplitRules, Splitter


@pytest.fixture
def split(tokenizer):
    splitter = Splitter(tokenizer, SplitRules())

    def split(texts, start=0, targets=("fra_Latn",)):
        records = [Record(start + i, (text,), "eng_Latn", targets) for i, text in enumerate(texts)]
        return splitter.split(records)

    return split


def segments_of(batches):
    return [segment for batch in batches for segment in batch.segments]


def test_batches_are_longest_first_and_under_the_budget(split):
    segments = [
        s for row in split(["x" * (1 + n * 37 % 101) for n in range(200)]) for s in row.segments
    ]
    limits = Limits(max_batch_tokens=300, max_batch_rows=16)
    batches = bucketed(segments, limits)
    lengths = [len(s.source_tokens) for s in segments_of(batches)]
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == 200
    for batch in batches:
        rows = len(batch.segments)
        assert rows <= 16
        assert rows * len(batch.segments[0].source_tokens) <= 300


def test_targets_count_against_the_budget(split):
    segments = [
        s for row in split(["x" * 8] * 20, targets=("fra_Latn", "deu_Latn")) for s in row.segments
    ]
    batches = bucketed(segments, Limits(max_batch_tokens=100))
    assert {len(batch.segments) for batch in batches} == {5}


def test_a_segment_over_the_budget_goes_alone(split):
    (row,) = split(["x" * 500])
    assert [len(b.segments) for b in bucketed(row.segments, Limits(max_batch_tokens=10))] == [1]


def test_repeated_segments_go_once(split):
    window = Window(Limits())
    window.add(split(["a", "b", "a", " ", "a"]))
    segments = segments_of(window.empty())
    assert sorted(len(segment.twins or ()) for segment in segments) == [0, 2]
    twins = next(segment.twins for segment in segments if segment.twins)
    assert [twin.record.index for twin in twins] == [2, 4]
    assert all(twin.is_repeated for twin in twins)
    assert not any(segment.is_repeated for segment in segments)


def test_other_target_is_not_a_repeat(split):
    window = Window(Limits())
    window.add(
        split(["a"]) + split(["a"], 1, ("deu_Latn",)) + split(["a"], 2, ("fra_Latn", "deu_Latn"))
    )
    assert [segment.twins for segment in segments_of(window.empty())] == [None, None, None]


def test_a_repeat_is_found_among_rows_of_other_languages(split):
    window = Window(Limits())
    for index, target in enumerate(("fra_Latn", "deu_Latn", "fra_Latn", "deu_Latn")):
        window.add(split(["a"], index, (target,)))
    segments = segments_of(window.empty())
    assert [[twin.record.index for twin in segment.twins] for segment in segments] == [[2], [3]]


def test_repeat_of_an_emptied_window_goes_again_and_is_marked(split):
    window = Window(Limits())
    window.add(split(["a"]))
    window.empty()
    window.add(split(["a", "a"], 1))
    (segment,) = segments_of(window.empty())
    assert segment.is_repeated
    assert [twin.record.index for twin in segment.twins] == [2]


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9])
def test_marks_do_not_depend_on_where_windows_end_or_a_run_was_resumed(split, cut):
    texts = [str(n % 5) for n in range(10)]
    start = BLOCK_ROWS - 3
    whole, resumed = Window(Limits()), Window(Limits())
    rows = split(texts, start)
    segments = [row.segments[0] for row in rows]
    whole.add(rows)
    expected = [segment.is_repeated for segment in segments]
    # a new block begins at the fourth row, and nothing before it counts
    assert expected == [False] * 8 + [True] * 2

    rows = split(texts, start)
    segments = [row.segments[0] for row in rows]
    block_start = 0 if cut < 3 else 3
    for row in rows[block_start:cut]:
        row.record.is_done = True
    assert resumed.add(rows[block_start:]) == rows[cut:]
    assert [segment.is_repeated for segment in segments[cut:]] == expected[cut:]


def test_window_is_full_by_rows_and_by_characters(split):
    window = Window(Limits(window_rows=3, window_chars=100))
    window.add(split(["a", ""]))
    assert not window.is_full
    window.add(split(["a"]))
    assert window.is_full
    window.empty()
    assert not window.is_full
    window.add(split(["x" * 100]))
    assert window.is_full


def test_windows_grow_from_a_small_first_one(split):
    window = Window(Limits(window_rows=50, first_window_rows=8))
    sizes = []
    for _ in range(6):
        sizes.append(window.room)
        window.add(split(["a"] * window.room))
        assert window.is_full
        window.empty()
    assert sizes == [8, 8, 16, 32, 50, 50]


def test_rows_and_segments_are_no_cycle(split):
    window = Window(Limits())
    rows = split(["a"])
    window.add(rows)
    assert rows[0].segments == ()
