"""Slots follow from the memory: never more than fits, more where there is more, else a reason."""

import re
from dataclasses import replace

import pytest
import torch

from nllb_cli.engine.sizes import TARGET_ROWS, SlotPlan, encode_tokens, in_gib, weight_bytes
from nllb_cli.engine.slots import Slots
from nllb_cli.errors import DeviceError
from nllb_cli.model.config import ModelConfig
from nllb_cli.model.weights import load_parameters
from tests.reference import make_checkpoint

NLLB_600M = ModelConfig(256206, 1024, 12, 12, 16, 16, 4096, 4096)
NLLB_3B = ModelConfig(256206, 2048, 24, 24, 16, 16, 8192, 8192)
GIB = 2**30


def plan(config=NLLB_600M, beam_size=4, gib=16.0, **more):
    return SlotPlan(config, beam_size, 2, int(gib * GIB), **more)


@pytest.mark.parametrize("config", [NLLB_600M, NLLB_3B])
@pytest.mark.parametrize("beam_size", [1, 4, 32])
def test_more_memory_never_means_fewer_slots(config, beam_size):
    slots = []
    for gib in (4, 6, 8, 12, 16, 24, 48, 80, 140):
        given = plan(config, beam_size, gib)
        shape = given.shape(127)
        assert given.needed_bytes(shape) <= gib * GIB
        slots.append(shape.num_slots)
    assert slots == sorted(slots)
    assert slots[0] < slots[-1]


def test_nothing_larger_would_fit():
    for gib in (4, 7, 11):
        given = plan(gib=gib)
        num_slots = given.shape(127).num_slots
        larger = replace(given, max_batch_rows=num_slots + 8, budget_bytes=2**50).shape(127)
        assert larger.num_slots == num_slots + 8
        assert given.needed_bytes(larger) > gib * GIB


def test_deeper_targets_and_wider_beams_mean_fewer_slots():
    by_depth = [plan(gib=4).shape(limit).num_slots for limit in (60, 255, 511, 1000)]
    assert by_depth == sorted(by_depth, reverse=True)
    assert len(set(by_depth)) == 4
    by_beam = [plan(beam_size=beam, gib=4).shape(127).num_slots for beam in range(1, 33)]
    assert by_beam == sorted(by_beam, reverse=True)


def test_a_step_has_as_many_rows_at_every_beam():
    for beam_size in range(2, 33):
        num_rows = plan(beam_size=beam_size, gib=100).shape(127).num_slots * beam_size
        assert 0.87 * TARGET_ROWS <= num_rows <= TARGET_ROWS
        assert num_rows % 16 == 0


@pytest.mark.parametrize("limit", [1, 127, 128, 255, 519, 520, 1000])
def test_targets_have_room(limit):
    assert plan().shape(limit).max_target_tokens >= limit


def test_rows_can_be_bounded():
    assert plan(max_batch_rows=7).shape(127).num_slots == 7
    assert plan(max_batch_rows=10**6, gib=1000).shape(127).num_slots == 1024


def test_a_sentence_of_any_length_finds_room_in_the_pool():
    for slots in (1, 37, 1024):
        shape = plan(max_batch_rows=slots).shape(127)
        assert shape.pool_rows >= 2 + 3 * encode_tokens(shape.num_slots)
        assert shape.num_entries > slots


def test_what_does_not_fit_is_told_in_numbers():
    with pytest.raises(DeviceError) as caught:
        plan(NLLB_3B, 32, gib=0.5).shape(511)
    needed, available = map(float, re.findall(r"([\d.]+) GiB", str(caught.value)))
    assert needed > available == 0.5
    given = plan(NLLB_3B, 32, gib=0.5)
    assert in_gib(given.needed_bytes(given.smallest(511))) in str(caught.value)
    assert "--beam" in str(caught.value)


def test_a_negative_budget_is_no_budget():
    with pytest.raises(DeviceError, match=r"0\.0 GiB are available"):
        plan(gib=-3).shape(10)


def test_weight_bytes_are_those_of_the_tensors(tmp_path):
    make_checkpoint(tmp_path, encoder_layers=1, decoder_layers=3)
    parameters = load_parameters(tmp_path, torch.device("cpu"), torch.bfloat16)
    config = parameters.config
    positions = (config.max_positions + 1) * config.d_model * 2
    assert weight_bytes(config, 2) == sum(tensor_bytes(parameters).values()) + positions
    embedding = config.padded_vocab_size * config.d_model * 2
    assert weight_bytes(replace(config, is_tied=False), 2) == weight_bytes(config, 2) + embedding


def tensor_bytes(value, found=None):
    """Return the bytes of each distinct tensor in a tree of objects."""
    found = {} if found is None else found
    if isinstance(value, torch.Tensor):
        found[value.data_ptr()] = value.nbytes
    elif isinstance(value, list):
        for item in value:
            tensor_bytes(item, found)
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            tensor_bytes(getattr(value, name), found)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_needed_bytes_cover_the_slots_tensors(tmp_path, dtype):
    make_checkpoint(tmp_path)
    parameters = load_parameters(tmp_path, torch.device("cpu"), dtype)
    given = SlotPlan(parameters.config, 3, dtype.itemsize, 2**30, max_batch_rows=37)
    shape = given.shape(127)
    tensors = {}
    for value in vars(Slots(parameters.config, shape, parameters.lm_head)).values():
        for tensor in value if isinstance(value, list | tuple) else [value]:
            tensor_bytes(tensor, tensors)
    taken = sum(tensors.values())
    assert 0.5 * given.needed_bytes(shape) < taken <= given.needed_bytes(shape)
