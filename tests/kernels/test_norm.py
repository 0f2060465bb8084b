"""The fused norms against their twins."""

import pytest
import torch

from nllb_cli.kernels import norm

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
EVERY_DTYPE = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def assert_close(actual, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def draw(*shape, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device, dtype)


@EVERY_DTYPE
@pytest.mark.parametrize(("R", "E"), [(1, 16), (37, 96), (3, 1023), (5, 2048)])
@pytest.mark.parametrize("has_delta", [True, False])
def test_add_layer_norm_agrees_with_twin(device, dtype, R, E, has_delta):
    x = draw(R, E, dtype=dtype, device=device) * 3 + 1
    delta = draw(R, E, dtype=dtype, device=device, seed=1) if has_delta else None
    weight, bias = draw(2, E, dtype=dtype, device=device, seed=2)
    expected_x = x.clone()
    expected = norm.add_layer_norm_reference(expected_x, delta, weight, bias)
    actual = norm.add_layer_norm_triton(x, delta, weight, bias)
    assert actual.dtype == dtype
    assert_close(actual, expected)
    assert torch.equal(x, expected_x)


def test_norm_is_of_the_unrounded_sum():
    """In bf16 256 + 0.5 rounds back to 256; a norm of rounded sums would see a constant row."""
    x = torch.full((1, 16), 256.0, dtype=torch.bfloat16)
    delta = torch.tensor([0.5, -0.5], dtype=torch.bfloat16).repeat(8)[None]
    ones, zeros = torch.ones(16, dtype=torch.bfloat16), torch.zeros(16, dtype=torch.bfloat16)
    normed = norm.add_layer_norm(x, delta, ones, zeros)
    assert normed.abs().min() > 0.9
    assert (x == 256).all()


def test_no_rows(device):
    x = torch.zeros(0, 32, device=device)
    weight, bias = torch.ones(2, 32, device=device)
    assert norm.add_layer_norm_triton(x, x.clone(), weight, bias).shape == (0, 32)


def test_nan_stays_in_its_row(device):
    x = draw(3, 40, dtype=torch.float32, device=device)
    x[1, 7] = float("nan")
    weight, bias = torch.ones(2, 40, device=device)
    actual = norm.add_layer_norm_triton(x, torch.zeros_like(x), weight, bias)
    assert actual[1].isnan().all()
    assert actual[[0, 2]].isfinite().all()


@EVERY_DTYPE
@pytest.mark.parametrize(("R", "E"), [(1, 16), (37, 96), (3, 1023)])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_embed_layer_norm_agrees_with_twin(device, dtype, R, E, index_dtype):
    table = draw(50, E, dtype=dtype, device=device)
    position_table = draw(20, E, dtype=dtype, device=device, seed=1)
    weight, bias = draw(2, E, dtype=dtype, device=device, seed=2)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(50, (R,), generator=generator).to(device, index_dtype)
    positions = torch.randint(20, (R,), generator=generator).to(device, torch.int32)
    arguments = (tokens, positions, table, position_table, 45.254833995939045, weight, bias)
    expected_x, expected = norm.embed_layer_norm_reference(*arguments)
    x, normed = norm.embed_layer_norm_triton(*arguments)
    if dtype == torch.float32:  # a GPU may contract the product and the sum to one operation
        torch.testing.assert_close(x, expected_x, rtol=1e-6, atol=1e-5)
    else:
        assert torch.equal(x, expected_x)
    assert_close(normed, expected)


def test_embedding_is_rounded_before_the_position_is_added():
    table = torch.tensor([[1.0078125, 1.0]], dtype=torch.bfloat16)
    position_table = torch.tensor([[0.25, 0.25]], dtype=torch.bfloat16)
    index, ones = torch.zeros(1, dtype=torch.int32), torch.ones(2, dtype=torch.bfloat16)
    x, _ = norm.embed_layer_norm(
        index, index, table, position_table, 45.254833995939045, ones, ones
    )
    product = (table[0].float() * 45.254833995939045).bfloat16()
    assert torch.equal(x[0], (product.float() + 0.25).bfloat16())
