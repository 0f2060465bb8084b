"""Decode cross-attention: twin against `scaled_dot_product_attention`, kernels against twin."""

import pytest
import torch

from nllb_cli.kernels import cross_attention

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
BOTH_KERNELS = pytest.mark.parametrize("use_dot", [True, False])


def build(lengths, K, H, D, dtype=torch.float32, device="cpu", slot_ids=None):
    """Sentences of these lengths, in reverse order and with gaps of NaN, in a strided pool."""
    generator = torch.Generator().manual_seed(len(lengths) * 100 + K)
    slots = len(lengths)
    slot_ids = list(range(slots)) if slot_ids is None else slot_ids
    pool = torch.full((sum(lengths) + 3 * slots, 3, 2, H, D), float("nan"))
    starts, start = [0] * slots, 2
    for slot in reversed(range(slots)):
        starts[slot] = start
        shape = (lengths[slot], 3, 2, H, D)
        pool[start : start + lengths[slot]] = torch.randn(*shape, generator=generator)
        start += lengths[slot] + 3
    pool[:, [0, 2]] = float("nan")  # other layers
    pool = pool.to(device, dtype)
    q = torch.randn(len(slot_ids) * K, H * D, generator=generator)
    for b, slot in enumerate(slot_ids):
        if slot < 0:
            q[b * K : (b + 1) * K] = float("nan")
    return {
        "q": q.to(device, dtype),
        "k": pool[:, 1, 0],
        "v": pool[:, 1, 1],
        "starts": torch.tensor(starts, dtype=torch.int32, device=device),
        "lengths": torch.tensor(lengths, dtype=torch.int32, device=device),
        "slot_ids": torch.tensor(slot_ids, dtype=torch.int32, device=device),
        "beam_size": K,
    }


def check_against_twin(state, **tuning):
    expected = cross_attention.cross_decode_attention_reference(**state)
    actual = cross_attention.cross_decode_attention_triton(**state, **tuning)
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    assert expected.isfinite().all()


def test_twin_agrees_with_torch():
    K, H, D = 3, 2, 16
    state = build([5, 1, 9], K, H, D, slot_ids=[2, -1, 0, 1])
    out = cross_attention.cross_decode_attention(**state).view(4, K, H, D)
    assert (out[1] == 0).all()
    for b, slot in ((0, 2), (2, 0), (3, 1)):
        start, length = int(state["starts"][slot]), int(state["lengths"][slot])
        q = state["q"].view(4, K, H, D)[b].transpose(0, 1)
        k = state["k"][start : start + length].transpose(0, 1)
        v = state["v"][start : start + length].transpose(0, 1)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(out[b], expected.transpose(0, 1))


@BOTH_KERNELS
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_agree_with_twin(device, use_dot, K, dtype):
    lengths = [1, 2, 37, 16] if K < 8 else [18]
    state = build(lengths, K, H=3, D=16, dtype=dtype, device=device)
    check_against_twin(state, use_dot=use_dot)


@BOTH_KERNELS
@pytest.mark.parametrize("D", [32, 64, 128])
def test_head_sizes(device, use_dot, D):
    state = build([1, 23], K=2, H=2, D=D, dtype=torch.float16, device=device)
    check_against_twin(state, use_dot=use_dot)


@pytest.mark.parametrize(
    "tuning",
    [
        {"use_dot": True, "block_s": 16, "num_warps": 4, "num_stages": 3},
        {"use_dot": True, "block_s": 64, "num_warps": 2},
        {"use_dot": False, "block_s": 1, "block_r": 8},
        {"use_dot": False, "block_s": 16, "block_r": 1, "num_warps": 4},
        {"use_dot": False, "block_r": 4, "block_w": 4, "block_s": 2, "num_stages": 2},
    ],
    ids=str,
)
def test_tuning_changes_nothing(device, tuning):
    check_against_twin(build([1, 69], K=5, H=3, D=16, device=device), **tuning)


@BOTH_KERNELS
@pytest.mark.parametrize("slot_ids", [[2, 0], [3, -1, 1, -1, 0], [1, 1, 1], [-1], []])
def test_positions_name_their_slots(device, use_dot, slot_ids):
    state = build([4, 1, 30, 8], 4, 2, 16, device=device, slot_ids=slot_ids)
    check_against_twin(state, use_dot=use_dot)


@BOTH_KERNELS
def test_nan_stays_in_its_beam(device, use_dot):
    state = build([5, 5], K=3, H=2, D=16, device=device)
    state["q"][4] = float("nan")
    out = cross_attention.cross_decode_attention_triton(**state, use_dot=use_dot)
    assert out[4].isnan().all()
    assert out[[0, 1, 2, 3, 5]].isfinite().all()


@BOTH_KERNELS
def test_long_source(device, use_dot):
    state = build([511], K=2, H=1, D=16, device=device)
    check_against_twin(state, use_dot=use_dot)


@BOTH_KERNELS
def test_indices_pass_31_bits(device, use_dot):
    """The last rows of a pool of more than 2^31 numbers, where there is memory for one."""
    state = build([40, 9], 4, 16, 64, dtype=torch.bfloat16, device=device)
    rows = torch.stack([state["k"], state["v"]], dim=1)  # [P, 2, H, D]
    num_rows = 2**31 // rows[0].numel() + 99 if device == "cuda" else 99
    pool = torch.zeros(num_rows, *rows.shape[1:], dtype=rows.dtype, device=device)
    pool[-len(rows) :] = rows
    state |= {"k": pool[:, 0], "v": pool[:, 1]}
    state["starts"] += num_rows - len(rows)
    check_against_twin(state, use_dot=use_dot)


@BOTH_KERNELS
def test_result_does_not_depend_on_batch_mates(device, use_dot):
    run = cross_attention.cross_decode_attention_triton
    state = build([4, 1, 70, 8], 4, 2, 16, dtype=torch.bfloat16, device=device)
    together = run(**state, use_dot=use_dot).view(4, 4, 32)
    for b in range(4):
        slot_ids, q = state["slot_ids"][b : b + 1], state["q"][4 * b : 4 * b + 4]
        alone = run(**(state | {"slot_ids": slot_ids, "q": q}), use_dot=use_dot)
        assert torch.equal(alone, together[b])
