"""Rows in eight bits: the kernel against its twin."""

import pytest
import torch

from nllb_cli.kernels import quantize

# the interpreter knows no eight-bit floats: there the scaling is tested, on a GPU the rounding
FP8 = pytest.param(torch.float8_e4m3fn, marks=pytest.mark.gpu)


@pytest.mark.parametrize("dtype", [torch.float16, FP8])
@pytest.mark.parametrize(("R", "E"), [(1, 64), (37, 1023)])
def test_agrees_with_twin(device, R, E, dtype):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(R, E, generator=generator) * 5).to(device)
    x[0, :3] = 0
    rounded, scale = quantize.quantize_rows_triton(x, dtype)
    expected, expected_scale = quantize.quantize_rows_reference(x, dtype)
    torch.testing.assert_close(scale, expected_scale)
    step = 0.07 if dtype == torch.float8_e4m3fn else 2e-3
    torch.testing.assert_close(rounded.float(), expected.float(), rtol=step, atol=1e-2)
    assert float(rounded.float().abs().max()) == quantize.LARGEST


def test_a_row_of_zeros_stays_one(device):
    rounded, scale = quantize.quantize_rows_triton(torch.zeros(2, 32, device=device), torch.float16)
    assert not rounded.any()
    assert scale.isfinite().all()
