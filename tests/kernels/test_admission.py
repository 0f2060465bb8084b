"""Waiting entries take free slots: the kernel against its twin."""

from functools import partial

import pytest
import torch

from nllb_cli.kernels import admission
from tests.kernels.search_world import World


@pytest.mark.parametrize("block", [4, 1024])  # in several turns, and in one
def test_kernel_does_what_its_twin_does(block, device):
    run = partial(admission.admit_triton, block=block)
    worlds = [World(9, 11, 3, 6, [5] * 9, device) for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        for world, admit in zip(worlds, (admission.admit_reference, run), strict=True):
            admit(world.state, world.source, world.queue, world.io)
        for parts in ("state", "source", "queue", "io"):
            for expected, actual in zip(*(getattr(w, parts) for w in worlds), strict=True):
                assert torch.equal(torch.nan_to_num(actual), torch.nan_to_num(expected)), parts
        ended = torch.rand(6, generator=generator) < 0.5
        for world in worlds:
            slots = world.io.slot_ids.long()
            finished = torch.where(ended.to(device), world.state.entry[slots], -1)
            world.io.finished.copy_(finished)
            world.state.entry[slots[finished >= 0]] = -1
    assert int(worlds[0].queue.counters[admission.HEAD]) == 9


def test_idle_slots_read_one_row(device):
    world = World(1, 11, 2, 3, [5], device)
    admission.admit_triton(world.state, world.source, world.queue, world.io)
    first, *others = world.io.slot_ids.tolist()
    assert world.state.entry[first] == 0
    assert world.state.entry[others].tolist() == [-1, -1]
    assert world.source.length[others].tolist() == [1, 1]
    assert world.queue.counters.tolist() == [1, 1, 0, 1]
