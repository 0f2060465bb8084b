"""Slices of inputs: how they are written, and that shards are the whole."""

from types import SimpleNamespace

import pytest

from nllb_cli.errors import UsageError
from nllb_cli.slices import Slice, parse_shard


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/3"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match=r"--shard .*: write I/N"):
        parse_shard(text)
    assert parse_shard("3/16") == (3, 16)


@pytest.mark.parametrize("num_rows", [0, 1, 7, 100])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_shards_follow_one_another_from_the_first_row_to_the_last(num_rows, count):
    source = SimpleNamespace(num_rows=num_rows, count_rows=lambda: num_rows)
    bounds = [Slice(shard=(number + 1, count)).bounds(source) for number in range(count)]
    assert [bounds[0][0], *(stop for _, stop in bounds)] == [*(b[0] for b in bounds), num_rows]


def test_rows_of_unknown_number_are_not_counted_for_skip_and_limit():
    source = SimpleNamespace(num_rows=None, count_rows=None)
    assert Slice(3).bounds(source) == (3, None)
    assert Slice(3, 4).bounds(source) == (3, 7)
