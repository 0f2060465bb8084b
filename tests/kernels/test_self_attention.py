"""Decode self-attention: twin against a loop over single beams, kernel against twin."""

import pytest
import torch

from nllb_cli.kernels import self_attention

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def build(lengths, K, H, D, dtype=torch.float32, device="cpu", T=None, slot_ids=None):
    """A random state whose cells that must not be read are NaN, and its table's are 255."""
    generator = torch.Generator().manual_seed(len(lengths) * 100 + K)
    slots, T = len(lengths), T or max(lengths) + 1
    slot_ids = list(range(slots)) if slot_ids is None else slot_ids
    qkv = torch.randn(len(slot_ids) * K, 3 * H * D, generator=generator)
    k_cache, v_cache = torch.full((2, slots, T, K, H, D), float("nan"))
    indirection = torch.full((slots, K, T), 255, dtype=torch.uint8)
    for slot, length in enumerate(lengths):
        cells = torch.randn(2, length - 1, K, H, D, generator=generator)
        k_cache[slot, 1:length], v_cache[slot, 1:length] = cells
        beams = torch.randint(K, (K, length - 1), generator=generator)
        indirection[slot, :, 1:length] = beams.to(torch.uint8)
    for b, slot in enumerate(slot_ids):
        if slot < 0:
            qkv[b * K : (b + 1) * K] = float("nan")
    prefix = torch.randn(5, 4, 2, H, D, generator=generator).to(device, dtype)
    return {
        "qkv": qkv.to(device, dtype),
        "k_cache": k_cache.to(device, dtype),
        "v_cache": v_cache.to(device, dtype),
        "indirection": indirection.to(device),
        "lengths": torch.tensor(lengths, dtype=torch.int32, device=device),
        "prefix_k": prefix[:, 2, 0],
        "prefix_v": prefix[:, 2, 1],
        "prefix_rows": torch.arange(slots, dtype=torch.int32, device=device) * 3 % 5,
        "slot_ids": torch.tensor(slot_ids, dtype=torch.int32, device=device),
        "beam_size": K,
    }


def copied(state):
    return {
        name: value.clone() if name in ("k_cache", "v_cache") else value
        for name, value in state.items()
    }


def check_against_twin(state, **tuning):
    expected_state, actual_state = copied(state), copied(state)
    expected = self_attention.self_decode_attention_reference(**expected_state)
    actual = self_attention.self_decode_attention_triton(**actual_state, **tuning)
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    assert expected.isfinite().all()
    for cache in ("k_cache", "v_cache"):
        assert torch.equal(
            actual_state[cache].nan_to_num(7.0), expected_state[cache].nan_to_num(7.0)
        )


def attend_by_hand(state, b, k):
    """One beam's attention, position by position."""
    slot, K = int(state["slot_ids"][b]), state["beam_size"]
    length, prefix = int(state["lengths"][slot]), int(state["prefix_rows"][slot])
    H, D = state["k_cache"].shape[3:]
    q, k_own, v_own = state["qkv"][b * K + k].view(3, H, D)
    keys, values = [state["prefix_k"][prefix]], [state["prefix_v"][prefix]]
    for position in range(1, length):
        beam = int(state["indirection"][slot, k, position])
        keys.append(state["k_cache"][slot, position, beam])
        values.append(state["v_cache"][slot, position, beam])
    keys, values = torch.stack([*keys, k_own]), torch.stack([*values, v_own])
    weights = (torch.einsum("hd,thd->ht", q, keys) * D**-0.5).softmax(-1)
    return torch.einsum("ht,thd->hd", weights, values).flatten()


def test_twin_agrees_with_attention_by_hand():
    state = build([3, 1, 7], K=3, H=2, D=16, slot_ids=[2, -1, 0, 1])
    before = copied(state)
    out = self_attention.self_decode_attention(**state).view(4, 3, 32)
    for b in (0, 2, 3):
        for k in range(3):
            torch.testing.assert_close(out[b, k], attend_by_hand(before, b, k))
    assert (out[1] == 0).all()
    for b, slot, length in ((0, 2, 7), (2, 0, 3), (3, 1, 1)):
        _, k_own, v_own = state["qkv"].view(4, 3, 3, 2, 16)[b].unbind(1)
        assert torch.equal(state["k_cache"][slot, length], k_own)
        assert torch.equal(state["v_cache"][slot, length], v_own)
        state["k_cache"][slot, length] = state["v_cache"][slot, length] = float("nan")
    for cache in ("k_cache", "v_cache"):
        assert torch.equal(state[cache].isnan(), before[cache].isnan())


def test_no_slot_is_active():
    state = build([3, 4], K=2, H=2, D=16, slot_ids=[-1, -1, -1])
    assert (self_attention.self_decode_attention(**state) == 0).all()


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernel_agrees_with_twin(device, K, dtype):
    lengths = [1, 2, 37, 6] if K < 8 else [18]
    check_against_twin(build(lengths, K, H=3, D=16, dtype=dtype, device=device))


@pytest.mark.parametrize("D", [32, 64, 128])
def test_head_sizes(device, D):
    check_against_twin(build([1, 23], K=2, H=2, D=D, dtype=torch.float16, device=device))


@pytest.mark.parametrize(
    "tuning",
    [
        {"block_t": 1},
        {"block_t": 16, "num_warps": 4},
        {"block_r": 1, "block_t": 4},
        {"block_r": 8, "num_stages": 3},
        {"block_r": 4, "block_w": 4, "block_t": 2},
        {"block_r": 16, "block_w": 2, "num_warps": 2},
    ],
    ids=str,
)
def test_tuning_changes_nothing(device, tuning):
    check_against_twin(build([20, 1], K=5, H=3, D=16, device=device), **tuning)


@pytest.mark.parametrize("slot_ids", [[2, 0], [3, -1, 1, -1, 0], [-1], []])
def test_positions_name_their_slots(device, slot_ids):
    check_against_twin(build([4, 1, 30, 8], 4, 2, 16, device=device, slot_ids=slot_ids))


def test_a_full_cache_is_not_written_past_its_end(device):
    """The engine never goes there; if it did, another slot's memory must stay whole."""
    state = build([6, 6], K=2, H=2, D=16, device=device, T=6)
    before = copied(state)
    self_attention.self_decode_attention_triton(**state)
    for cache in ("k_cache", "v_cache"):
        assert torch.equal(state[cache].nan_to_num(7.0), before[cache].nan_to_num(7.0))


def test_nan_stays_in_its_beam(device):
    state = build([5, 5], K=3, H=2, D=16, device=device)
    state["qkv"][4, :32] = float("nan")
    out = self_attention.self_decode_attention_triton(**state)
    assert out[4].isnan().all()
    assert out[[0, 1, 2, 3, 5]].isfinite().all()


def test_long_past(device):
    check_against_twin(build([511], K=2, H=1, D=16, device=device))


def test_indices_pass_31_bits(device):
    """The last slots of a cache of more than 2^31 numbers, where there is memory for one."""
    state = build([60, 33], 4, 16, 64, dtype=torch.bfloat16, device=device, T=64)
    num_slots = 2**31 // state["k_cache"][0].numel() + 9 if device == "cuda" else 5

    def last_of_many(tensor):
        many = torch.zeros(num_slots, *tensor.shape[1:], dtype=tensor.dtype, device=device)
        many[-2:] = tensor
        return many

    for name in ("k_cache", "v_cache", "indirection", "lengths", "prefix_rows"):
        state[name] = last_of_many(state[name])
    state["slot_ids"] += num_slots - 2
    expected = self_attention.self_decode_attention_reference(**state)
    actual = self_attention.self_decode_attention_triton(**state)
    torch.testing.assert_close(actual, expected, rtol=3e-2, atol=3e-2)


def test_result_does_not_depend_on_batch_mates(device):
    state = build([4, 1, 30, 8], 4, 2, 16, dtype=torch.bfloat16, device=device)
    together = self_attention.self_decode_attention_triton(**copied(state)).view(4, 4, 32)
    for b in range(4):
        alone = copied(state)
        alone["slot_ids"] = state["slot_ids"][b : b + 1]
        alone["qkv"] = state["qkv"][4 * b : 4 * b + 4]
        assert torch.equal(self_attention.self_decode_attention_triton(**alone), together[b])
