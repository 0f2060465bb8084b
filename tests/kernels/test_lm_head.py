"""The tiled lm_head product against its twin and against plain logits."""

import pytest
import torch

from nllb_cli.kernels import lm_head, quantize

SHAPES = [(1, 64, 128, 100, 98), (37, 64, 640, 600, 511), (130, 96, 1024, 1024, 1024)]


def draw(R, E, V_padded, vocab_size, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(R, E, generator=generator)
    weight = torch.randn(V_padded, E, generator=generator)
    weight[vocab_size:] = 0
    return hidden.to(device, dtype), weight.to(device, dtype)


def buffers(R, V_padded, dtype, device):
    tiles = lm_head.num_tiles(V_padded)
    return (
        torch.empty(R, V_padded, dtype=dtype, device=device),
        torch.empty(R, tiles, device=device),
        torch.empty(R, tiles, device=device),
    )


# the interpreter multiplies the bits of bf16, not its values
BF16 = pytest.param(torch.bfloat16, 1e-4, marks=pytest.mark.gpu)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 1e-4), BF16]
)
@pytest.mark.parametrize(("R", "E", "V_padded", "vocab_size", "num_tokens"), SHAPES)
def test_agrees_with_twin(device, dtype, tolerance, R, E, V_padded, vocab_size, num_tokens):
    hidden, weight = draw(R, E, V_padded, vocab_size, dtype, device)
    kind = torch.float32 if dtype == torch.float32 else torch.float16
    expected, actual = (buffers(R, V_padded, kind, device) for _ in range(2))
    lm_head.lm_head_tiles_reference(hidden, weight, *expected, vocab_size, num_tokens)
    lm_head.lm_head_tiles_triton(hidden, weight, *actual, vocab_size, num_tokens)
    torch.testing.assert_close(actual[1], expected[1], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-3, atol=1e-4)
    chosen = [tensor[:, :num_tokens] for tensor in (actual[0], expected[0])]
    torch.testing.assert_close(
        *chosen, rtol=max(tolerance, 1e-3 * (kind == torch.float16)), atol=1e-3
    )
    assert torch.isneginf(actual[0][:, num_tokens:]).all()


def test_fp16_distances_keep_the_best_of_a_tile_exact(device):
    hidden, weight = draw(5, 64, 512, 512, torch.float32, device)
    relative, peak, total = buffers(5, 512, torch.float16, device)
    lm_head.lm_head_tiles_triton(hidden, weight, relative, peak, total, 512, 512)
    logits = (hidden @ weight.T).reshape(5, 2, lm_head.TILE)
    torch.testing.assert_close(peak, logits.amax(2), rtol=1e-5, atol=1e-5)
    best = relative.reshape(5, 2, lm_head.TILE).amax(2)
    assert (best == 0).all()


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_not_a_number_reaches_the_sum(device):
    hidden, weight = draw(3, 64, 256, 256, torch.float32, device)
    hidden[1, 5] = float("nan")
    relative, peak, total = buffers(3, 256, torch.float32, device)
    lm_head.lm_head_tiles_triton(hidden, weight, relative, peak, total, 256, 256)
    assert total.isfinite()[:, 0].tolist() == [True, False, True]


def test_scales_belong_to_rows_and_to_vocabulary(device):
    hidden, weight = draw(7, 64, 512, 500, torch.float32, device)
    scales = (torch.arange(1, 8, device=device) / 4.0, torch.arange(1, 513, device=device) / 256.0)
    expected, actual = (buffers(7, 512, torch.float32, device) for _ in range(2))
    scaled = (hidden * scales[0][:, None], weight * scales[1][:, None])
    lm_head.lm_head_tiles_reference(*scaled, *expected, 500, 500)
    lm_head.lm_head_tiles_triton(hidden, weight, *actual, 500, 500, scales)
    torch.testing.assert_close(actual[1], expected[1], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_eight_bits_are_near_the_exact_product(device):
    """Rounding to 3 bits of mantissa leaves an error of a few per cent of a logit's spread."""
    hidden, weight = draw(130, 1024, 1024, 1024, torch.bfloat16, "cuda")
    rows, row_scale = quantize.quantize_rows(hidden)
    columns, weight_scale = quantize.quantize_rows(weight)
    relative, peak, total = buffers(130, 1024, torch.float16, "cuda")
    lm_head.lm_head_tiles_triton(
        rows, columns, relative, peak, total, 1024, 1024, (row_scale, weight_scale)
    )
    logits = relative.float() + peak.repeat_interleave(lm_head.TILE, 1)
    exact = hidden.float() @ weight.float().T
    assert ((logits - exact).std() / exact.std()) < 0.06
