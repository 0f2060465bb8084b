"""Rows in eight-bit floating point, each with its own scale."""

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton

LARGEST = 448.0
"""The largest value of float8_e4m3fn."""


def quantize_rows_reference(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The twin of `quantize_rows`."""
    scale = x.float().abs().amax(1).clamp(min=1e-12) / LARGEST
    return (x.float() / scale[:, None]).to(dtype), scale


@triton.jit
def _quantize_rows_kernel(
    x_ptr, out_ptr, scale_ptr, E: tl.constexpr, LARGEST: tl.constexpr, BLOCK_E: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK_E)
    is_column = column < E
    x = tl.load(x_ptr + row * E + column, mask=is_column, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-12) / LARGEST
    tl.store(scale_ptr + row, scale)
    scaled = (x / scale).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * E + column, scaled, mask=is_column)


def quantize_rows_triton(
    x: Tensor, dtype: torch.dtype, *, num_warps: int = 4
) -> tuple[Tensor, Tensor]:
    """The kernel of `quantize_rows`, one program a row."""
    R, E = x.shape
    assert x.is_contiguous()
    out = torch.empty(R, E, dtype=dtype, device=x.device)
    scale = torch.empty(R, dtype=torch.float32, device=x.device)
    _quantize_rows_kernel[(R,)](
        x,
        out,
        scale,
        E=E,
        LARGEST=LARGEST,
        BLOCK_E=triton.next_power_of_2(E),
        num_warps=num_warps,
    )
    return out, scale


def quantize_rows(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """Scale each row so that its largest value is the dtype's, and round.

    Shapes:
        x, first result [R, E]; second result, the scale to multiply with, [R] fp32
    """
    run = quantize_rows_triton if x.is_cuda else quantize_rows_reference
    return run(x, dtype)
