"""Layer norm fused with what comes before it: a residual sum, or the embedding."""

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton


def add_layer_norm_reference(
    x: Tensor, delta: Tensor | None, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """The twin of `add_layer_norm`."""
    total = x.float()
    if delta is not None:
        total = total + delta.float()
        x.copy_(total)
    normed = torch.nn.functional.layer_norm(
        total, total.shape[-1:], weight.float(), bias.float(), eps
    )
    return normed.to(x.dtype)


@triton.jit
def _normalize(row, is_column, weight, bias, E: tl.constexpr, EPS: tl.constexpr):
    mean = tl.sum(row, axis=0) / E
    centered = tl.where(is_column, row - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / E
    scale = 1.0 / tl.sqrt(variance + EPS)
    return centered * scale * weight.to(tl.float32) + bias.to(tl.float32)


@triton.jit
def _add_layer_norm_kernel(
    x_ptr,
    delta_ptr,
    weight_ptr,
    bias_ptr,
    normed_ptr,
    E: tl.constexpr,
    EPS: tl.constexpr,
    HAS_DELTA: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    column = tl.arange(0, BLOCK_E)
    is_column = column < E
    weight = tl.load(weight_ptr + column, mask=is_column, other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0)
    offset = tl.program_id(0).to(tl.int64) * E + column
    row = tl.load(x_ptr + offset, mask=is_column, other=0.0).to(tl.float32)
    if HAS_DELTA:
        row += tl.load(delta_ptr + offset, mask=is_column, other=0.0).to(tl.float32)
        tl.store(x_ptr + offset, row.to(x_ptr.dtype.element_ty), mask=is_column)
    normed = _normalize(row, is_column, weight, bias, E, EPS)
    tl.store(normed_ptr + offset, normed.to(normed_ptr.dtype.element_ty), mask=is_column)


def add_layer_norm_triton(
    x: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    *,
    num_warps: int = 4,
) -> Tensor:
    """The kernel of `add_layer_norm`, one program a row."""
    R, E = x.shape
    assert x.is_contiguous()
    assert weight.is_contiguous()
    assert bias.is_contiguous()
    assert delta is None or (delta.shape == x.shape and delta.is_contiguous())
    normed = torch.empty_like(x)
    if R:
        _add_layer_norm_kernel[(R,)](
            x,
            x if delta is None else delta,
            weight,
            bias,
            normed,
            E=E,
            EPS=eps,
            HAS_DELTA=delta is not None,
            BLOCK_E=triton.next_power_of_2(E),
            num_warps=num_warps,
        )
    return normed


def add_layer_norm(
    x: Tensor, delta: Tensor | None, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Add `delta` to the residual stream `x` in place and return the layer norm of the sum.

    The norm is taken of the sum before it is rounded to the dtype of `x`.

    Shapes:
        x, delta, result [R, E]; weight, bias [E]
    """
    run = add_layer_norm_triton if x.is_cuda else add_layer_norm_reference
    return run(x, delta, weight, bias, eps)


def embed_layer_norm_reference(
    tokens: Tensor,
    positions: Tensor,
    table: Tensor,
    position_table: Tensor,
    scale: float,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """The twin of `embed_layer_norm`."""
    x = table[tokens.long()] * scale + position_table[positions.long()]
    return x, add_layer_norm_reference(x, None, weight, bias, eps)


@triton.jit
def _embed_layer_norm_kernel(
    tokens_ptr,
    positions_ptr,
    table_ptr,
    position_table_ptr,
    scale,
    weight_ptr,
    bias_ptr,
    x_ptr,
    normed_ptr,
    E: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK_E)
    is_column = column < E
    weight = tl.load(weight_ptr + column, mask=is_column, other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0)
    token = tl.load(tokens_ptr + row).to(tl.int64)
    place = tl.load(positions_ptr + row).to(tl.int64)
    word = tl.load(table_ptr + token * E + column, mask=is_column, other=0.0)
    position = tl.load(position_table_ptr + place * E + column, mask=is_column, other=0.0)
    # the product is rounded to the dtype before the position is added, as in transformers
    product = (word.to(tl.float32) * scale).to(word.dtype).to(tl.float32)
    x = (product + position.to(tl.float32)).to(word.dtype)
    offset = row * E + column
    tl.store(x_ptr + offset, x, mask=is_column)
    normed = _normalize(x.to(tl.float32), is_column, weight, bias, E, EPS)
    tl.store(normed_ptr + offset, normed.to(word.dtype), mask=is_column)


def embed_layer_norm_triton(
    tokens: Tensor,
    positions: Tensor,
    table: Tensor,
    position_table: Tensor,
    scale: float,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    *,
    num_warps: int = 4,
) -> tuple[Tensor, Tensor]:
    """The kernel of `embed_layer_norm`, one program a row."""
    (R,), E = tokens.shape, table.shape[1]
    for tensor in (tokens, positions, table, position_table, weight, bias):
        assert tensor.is_contiguous()
    x = torch.empty(R, E, dtype=table.dtype, device=table.device)
    normed = torch.empty_like(x)
    if R:
        _embed_layer_norm_kernel[(R,)](
            tokens,
            positions,
            table,
            position_table,
            scale,
            weight,
            bias,
            x,
            normed,
            E=E,
            EPS=eps,
            BLOCK_E=triton.next_power_of_2(E),
            num_warps=num_warps,
        )
    return x, normed


def embed_layer_norm(
    tokens: Tensor,
    positions: Tensor,
    table: Tensor,
    position_table: Tensor,
    scale: float,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return the scaled embedding plus its position, and the first layer's norm of it.

    Shapes:
        tokens, positions [R]; table [V, E]; position_table [N, E]; weight, bias [E]
        results x, normed [R, E]
    """
    run = embed_layer_norm_triton if table.is_cuda else embed_layer_norm_reference
    return run(tokens, positions, table, position_table, scale, weight, bias, eps)
