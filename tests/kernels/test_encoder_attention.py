"""Packed encoder attention: twin against single sentences, kernel against twin."""

import pytest
import torch

from nllb_cli.kernels import encoder_attention

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def build(lengths, H, D, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(sum(lengths))
    qkv = torch.randn(sum(lengths), 3 * H * D, generator=generator).to(device, dtype)
    starts = torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
    return {"qkv": qkv, "starts": starts, "max_length": max(lengths, default=0), "num_heads": H}


def check_against_twin(batch, **tuning):
    expected = encoder_attention.encoder_attention_reference(**batch)
    actual = encoder_attention.encoder_attention_triton(**batch, **tuning)
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    assert expected.isfinite().all()


def test_twin_agrees_with_single_sentences():
    lengths, H, D = [3, 1, 8, 5], 2, 16
    batch = build(lengths, H, D)
    out = encoder_attention.encoder_attention(**batch)
    for rows, result in zip(batch["qkv"].split(lengths), out.split(lengths), strict=True):
        q, k, v = rows.view(-1, 3, H, D).permute(1, 2, 0, 3)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(result, expected.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", [[1], [7, 1, 32, 17], [65, 3, 70], [33]], ids=str)
def test_kernel_agrees_with_twin(device, dtype, lengths):
    check_against_twin(build(lengths, H=2, D=16, dtype=dtype, device=device))


@pytest.mark.parametrize("D", [32, 64, 128])
def test_head_sizes(device, D):
    check_against_twin(build([37, 2], H=2, D=D, dtype=torch.bfloat16, device=device))


@pytest.mark.parametrize(
    "tuning",
    [
        {"block_q": 16, "block_s": 64},
        {"block_q": 128, "block_s": 16, "num_warps": 8, "num_stages": 3},
    ],
    ids=str,
)
def test_tuning_changes_nothing(device, tuning):
    check_against_twin(build([20, 1, 69], H=2, D=16, device=device), **tuning)


def test_no_sentences(device):
    batch = build([], H=2, D=16, device=device)
    assert encoder_attention.encoder_attention_triton(**batch).shape == (0, 32)
    assert encoder_attention.encoder_attention_reference(**batch).shape == (0, 32)


def test_nan_stays_in_its_sentence(device):
    batch = build([5, 4, 6], H=2, D=16, device=device)
    batch["qkv"][5:9] = float("nan")
    for run in ("encoder_attention_triton", "encoder_attention_reference"):
        out = getattr(encoder_attention, run)(**batch)
        assert out[5:9].isnan().all()
        assert out[:5].isfinite().all()
        assert out[9:].isfinite().all()


def test_long_sentence(device):
    batch = build([1, 2000], H=1, D=16, device=device)
    check_against_twin(batch, block_q=64, block_s=64 if device == "cuda" else 512)


def test_result_does_not_depend_on_batch_mates(device):
    lengths = [40, 3, 65]
    batch = build(lengths, H=2, D=16, dtype=torch.bfloat16, device=device)
    together = encoder_attention.encoder_attention_triton(**batch).split(lengths)
    for length, qkv, expected in zip(lengths, batch["qkv"].split(lengths), together, strict=True):
        alone = build([length], H=2, D=16, device=device) | {"qkv": qkv}
        assert torch.equal(encoder_attention.encoder_attention_triton(**alone), expected)
