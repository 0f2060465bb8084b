"""What the device left in its outbox comes back as hypotheses, in the order of the ends."""

import math
import types

import pytest
import torch

from nllb_cli.engine import outcome
from nllb_cli.engine.outcome import Arrival, fetch, hypotheses, send_to_host
from nllb_cli.engine.slots import Slots, SlotShape
from nllb_cli.kernels.search import FINISH_EOS, FINISH_INVALID, FINISH_LENGTH
from nllb_cli.model.config import ModelConfig

CONFIG = ModelConfig(97, 32, 1, 1, 4, 4, 48, 48)


@pytest.fixture
def slots():
    return Slots(CONFIG, SlotShape(3, 2, 9, pool_rows=8, num_entries=5), torch.empty(0))


def put(slots, number, entry, tokens, score, finish):
    """Write an entry's result as the `number`-th to be done."""
    slots.queue.done[number % 5] = entry
    box = slots.outbox
    box.tokens[entry, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    box.length[entry], box.score[entry], box.finish[entry] = len(tokens), score, finish


def test_results_come_in_the_order_of_their_ends(slots):
    put(slots, 3, 4, [8, 7, 6], -0.5, FINISH_EOS)
    put(slots, 4, 0, [5], -1.5, FINISH_LENGTH)
    put(slots, 5, 2, [], -2.5, FINISH_EOS)  # the ring of five has wrapped
    found = hypotheses(fetch(slots, 3, 6))
    assert [entry for entry, _ in found] == [4, 0, 2]
    assert [h.tokens for _, h in found] == [[8, 7, 6], [5], []]
    assert [h.score for _, h in found] == [-0.5, -1.5, -2.5]
    assert [h.finish for _, h in found] == ["eos", "length", "eos"]


def test_a_broken_search_has_no_tokens_and_no_score(slots):
    put(slots, 0, 1, [9, 9, 9], 0.25, FINISH_INVALID)
    ((entry, hypothesis),) = hypotheses(fetch(slots, 0, 1))
    assert (entry, hypothesis.tokens, hypothesis.finish) == (1, [], "invalid")
    assert math.isnan(hypothesis.score)


def test_what_was_sent_does_not_change_afterwards(slots):
    put(slots, 0, 1, [3, 4], -1.0, FINISH_EOS)
    arrival = fetch(slots, 0, 1)
    put(slots, 1, 1, [5, 6, 7], -9.0, FINISH_LENGTH)  # the entry is used again at once
    ((_, hypothesis),) = hypotheses(arrival)
    assert (hypothesis.tokens, hypothesis.score) == ([3, 4], -1.0)
    counters = send_to_host([slots.queue.counters])
    slots.queue.counters.add_(1)
    assert counters.wait()[0].tolist() == [0, 0, 0, 0]


def test_nothing_is_read_before_the_copy_is_over():
    order = []
    event = types.SimpleNamespace(synchronize=lambda: order.append("waited"))
    arrival = Arrival([torch.zeros(1)], event)
    assert not order
    arrival.wait()
    assert order == ["waited"]


def test_nothing_to_fetch_is_nothing(slots):
    assert hypotheses(fetch(slots, 2, 2)) == []


def test_every_ending_of_a_search_has_a_word():
    assert set(outcome._FINISH) | {FINISH_INVALID} == {FINISH_EOS, FINISH_LENGTH, FINISH_INVALID}
