"""Waiting entries take free slots, each once; compacting moves places and no cache."""

import random

import pytest
import torch

from nllb_cli.engine.slots import Slots, SlotShape, slot_bytes
from nllb_cli.kernels.admission import HEAD, NUM_ACTIVE, NUM_DONE, TAIL
from nllb_cli.model.config import ModelConfig

CONFIG = ModelConfig(97, 32, 2, 3, 4, 4, 48, 48)


def make_slots(num_slots=5, beam_size=2, num_positions=16, num_entries=23):
    shape = SlotShape(num_slots, beam_size, num_positions, pool_rows=200, num_entries=num_entries)
    return Slots(CONFIG, shape, torch.empty(0))


def enqueue(slots, entries, tail):
    """Let entries wait, each with rows, language and limit that tell which it is."""
    columns = [[2 + 3 * e, 1 + e % 4, 100 + e, 50 + e, 5 + e % 9] for e in entries]
    slots.enqueue(entries, torch.tensor(columns, dtype=torch.int32).T, tail)


def working(slots):
    """Return slot to entry where a slot works."""
    return {slot: e for slot, e in enumerate(slots.state.entry.tolist()) if e >= 0}


def test_waiting_entries_take_free_slots_in_their_order():
    slots = make_slots()
    enqueue(slots, [7, 3, 11], tail=0)
    slots.fill(2)
    assert list(working(slots).values()) == [7, 3]
    slots.fill(5)
    assert list(working(slots).values()) == [7, 3, 11]
    counters = slots.queue.counters.tolist()
    assert (counters[HEAD], counters[TAIL], counters[NUM_DONE], counters[NUM_ACTIVE]) == (
        3, 3, 0, 3,
    )  # fmt: skip


def test_a_slot_starts_with_what_its_entry_is():
    slots = make_slots()
    enqueue(slots, [7, 3], tail=0)
    slots.fill(5)
    for slot, entry in working(slots).items():
        assert int(slots.source.start[slot]) == 2 + 3 * entry
        assert int(slots.source.length[slot]) == 1 + entry % 4
        assert int(slots.source.prefix[slot]) == 100 + entry
        assert int(slots.state.limit[slot]) == 5 + entry % 9
        place = slots._slot_ids.tolist().index(slot)
        assert slots.io(5).next_tokens.view(5, 2)[place].tolist() == [50 + entry] * 2
        assert slots.state.log_prob[slot, 0] == 0
        assert (slots.state.log_prob[slot, 1:] < -1e8).all()
        assert (slots.state.final_score[slot] == -torch.inf).all()


@pytest.mark.parametrize("seed", range(6))
def test_every_entry_runs_once_whatever_the_order_of_ends(seed):
    """Entries come and end at random, the rungs change, the ring wraps: none is lost or doubled."""
    rng = random.Random(seed)
    slots = make_slots()
    free, tail, started, num_finished, places = list(range(23)), 0, [], 0, 5
    running = {}
    for _ in range(120):
        count = rng.randrange(0, min(4, len(free) + 1))
        new = [free.pop(rng.randrange(len(free))) for _ in range(count)]
        if new:
            enqueue(slots, new, tail)
            started += [(entry, tail + i) for i, entry in enumerate(new)]
            tail += count
        over = [slot for slot in running if rng.random() < 0.3]
        for slot in over:
            free.append(running[slot])
            num_finished += 1
            slots.state.entry[slot] = -1
        places = rng.choice([n for n in (2, 3, 5) if n >= len(working(slots))])
        slots.compact()
        before = dict(working(slots))
        slots.fill(places)
        after = working(slots)
        assert before.items() <= after.items()
        assert len(set(after.values())) == len(after)
        fresh = [entry for slot, entry in after.items() if slot not in before]
        head = int(slots.queue.counters[HEAD])
        expected = [entry for entry, _ in started[head - len(fresh) : head]]
        assert sorted(fresh) == sorted(expected)
        assert len(after) == places or head == tail
        running = after
    assert num_finished > 30
    assert tail > 23


def test_compacting_brings_working_places_to_the_front_in_order():
    slots = make_slots(num_slots=6)
    enqueue(slots, [4, 5, 6, 7, 8, 9], tail=0)
    slots.fill(6)
    tokens = slots._next_tokens.view(6, 2)
    tokens.copy_(torch.arange(12).view(6, 2))
    slots.state.entry[[0, 2, 3]] = -1
    caches = [cache.data_ptr() for cache in (*slots.k_cache, *slots.v_cache)]
    slots.compact()
    assert slots._slot_ids[:3].tolist() == [1, 4, 5]
    assert sorted(slots._slot_ids.tolist()) == list(range(6))
    assert tokens[:3].tolist() == [[2, 3], [8, 9], [10, 11]]
    assert caches == [cache.data_ptr() for cache in (*slots.k_cache, *slots.v_cache)]


def test_an_idle_slot_reads_rows_that_are_there():
    """It takes part in every step: what it reads must be finite and inside of the pool."""
    slots = make_slots()
    slots.fill(5)
    assert (slots.source.length == 1).all()
    assert (slots.source.prefix < 2).all()
    assert (slots.source.start < 2).all()
    assert (slots.pool[:2] == 0).all()
    assert (slots.state.length == 1).all()


def test_keys_and_values_are_views_of_the_pool():
    slots = make_slots()
    for layer in range(CONFIG.decoder_layers):
        assert slots.keys(layer).shape == (200, 4, 8)
        slots.keys(layer)[5] = layer
        slots.values(layer)[5] = -layer
    expected = [[[float(s * layer)] * 32 for s in (1, -1)] for layer in range(3)]
    assert slots.pool[5].view(3, 2, 32).tolist() == expected


def test_bytes_grow_with_everything():
    base = SlotShape(8, 4, 128, 1000, 99)
    least = slot_bytes(CONFIG, base, 2)
    for change in (
        SlotShape(9, 4, 128, 1000, 99),
        SlotShape(8, 5, 128, 1000, 99),
        SlotShape(8, 4, 129, 1000, 99),
        SlotShape(8, 4, 128, 1001, 99),
        SlotShape(8, 4, 128, 1000, 100),
    ):
        assert slot_bytes(CONFIG, change, 2) > least
    assert slot_bytes(CONFIG, base, 4) > least
