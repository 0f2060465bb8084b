"""Rows are never handed out twice and all come back."""

import random

from nllb_cli.engine.pool import RowPool


def test_rows_are_lent_once_and_come_back():
    rng = random.Random(0)
    pool = RowPool(100)
    lent = {}
    for _ in range(2000):
        if lent and rng.random() < 0.5:
            first = rng.choice(list(lent))
            pool.give_back(first, lent.pop(first))
        else:
            count = rng.randrange(1, 30)
            first = pool.take(count)
            if first is not None:
                mine = set(range(first, first + count))
                assert max(mine) < 100
                for other, size in lent.items():
                    assert not mine & set(range(other, other + size))
                lent[first] = count
        assert pool.num_free == 100 - sum(lent.values())
    for first, count in lent.items():
        pool.give_back(first, count)
    assert pool.take(100) == 0
    assert pool.take(1) is None
