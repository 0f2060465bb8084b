"""The product of decoder outputs with the vocabulary, reduced a tile at a time on its way out."""

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import TensorDescriptor, tl, triton

TILE = 256
"""Vocabulary rows a tile: one maximum and one sum of exponentials each."""


def num_tiles(vocab_rows: int) -> int:
    """Tiles of a vocabulary of `vocab_rows` rows."""
    return -(-vocab_rows // TILE)


def lm_head_tiles_reference(
    hidden: Tensor,
    weight: Tensor,
    relative: Tensor,
    tile_max: Tensor,
    tile_sum: Tensor,
    vocab_size: int,
    num_tokens: int,
    scales: tuple[Tensor, Tensor] | None = None,
) -> None:
    """The twin of `lm_head_tiles`."""
    logits = hidden.float() @ weight.float().T
    if scales is not None:
        logits *= scales[0][:, None] * scales[1]
    for tile in range(tile_max.shape[1]):
        part = logits[:, tile * TILE : min((tile + 1) * TILE, vocab_size)]
        chosen = part[:, : max(0, num_tokens - tile * TILE)]
        peak = (chosen if chosen.shape[1] else part).amax(1)
        tile_max[:, tile] = peak
        tile_sum[:, tile] = (part - peak[:, None]).clamp(max=80.0).exp().sum(1)
        columns = relative[:, tile * TILE : (tile + 1) * TILE]
        columns.fill_(float("-inf"))
        columns[:, : chosen.shape[1]] = chosen - peak[:, None]


@triton.jit
def _lm_head_tiles_kernel(
    hidden_desc,
    weight_desc,
    relative_desc,
    max_ptr,
    sum_ptr,
    row_scale_ptr,
    weight_scale_ptr,
    R,
    E: tl.constexpr,
    vocab_size,
    num_tokens,
    NUM_TILES: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_E: tl.constexpr,
    PRECISION: tl.constexpr,
    HAS_SCALES: tl.constexpr,
):
    # rows vary fastest, so that the programs that run together share a tile of the vocabulary
    num_row_blocks = tl.cdiv(R, BLOCK_R)
    for index in tl.range(tl.program_id(0), num_row_blocks * NUM_TILES, NUM_PROGRAMS):
        row = (index % num_row_blocks) * BLOCK_R
        tile = index // num_row_blocks
        first = tile * BLOCK_V
        logits = tl.zeros((BLOCK_R, BLOCK_V), tl.float32)
        for e in range(0, E, BLOCK_E):
            logits = tl.dot(
                hidden_desc.load([row, e]),
                weight_desc.load([first, e]).T,
                logits,
                input_precision=PRECISION,
            )
        rows = row + tl.arange(0, BLOCK_R)
        if HAS_SCALES:
            row_scale = tl.load(row_scale_ptr + rows, mask=rows < R, other=0.0)
            weight_scale = tl.load(weight_scale_ptr + first + tl.arange(0, BLOCK_V))
            logits = logits * row_scale[:, None] * weight_scale[None, :]
        if first + BLOCK_V <= num_tokens:
            peak = tl.max(logits, 1)
            shifted = logits - peak[:, None]
            total = tl.sum(tl.exp(shifted), 1)
        else:  # the last tiles: rows without a token count in the sum, padding rows nowhere
            column = first + tl.arange(0, BLOCK_V)
            real = tl.where((column < vocab_size)[None, :], logits, float("-inf"))
            can_choose = column < num_tokens
            if first < num_tokens:
                peak = tl.max(tl.where(can_choose[None, :], real, float("-inf")), 1)
            else:
                peak = tl.max(real, 1)
            shifted = real - peak[:, None]
            total = tl.sum(tl.exp(tl.minimum(shifted, 80.0)), 1)
            shifted = tl.where(can_choose[None, :], shifted, float("-inf"))
        offset = rows.to(tl.int64) * NUM_TILES + tile
        tl.store(max_ptr + offset, peak, mask=rows < R)
        tl.store(sum_ptr + offset, total, mask=rows < R)
        relative_desc.store([row, first], shifted.to(relative_desc.dtype))


def lm_head_tiles_triton(
    hidden: Tensor,
    weight: Tensor,
    relative: Tensor,
    tile_max: Tensor,
    tile_sum: Tensor,
    vocab_size: int,
    num_tokens: int,
    scales: tuple[Tensor, Tensor] | None = None,
    *,
    block_rows: int = 128,
    block_width: int = 64,
    num_warps: int = 8,
    num_stages: int = 3,
) -> None:
    """The kernel of `lm_head_tiles`: persistent programs, bulk tensor copies in and out."""
    R, E = hidden.shape
    assert weight.shape[1] == E
    assert hidden.is_contiguous()
    assert weight.is_contiguous()
    assert relative.is_contiguous()
    assert relative.shape == (R, weight.shape[0])
    assert tile_max.shape == tile_sum.shape == (R, num_tiles(weight.shape[0]))
    if hidden.dtype == torch.float32:  # twice the bytes: the same shared memory with half the depth
        block_rows, block_width = 64, 32
    elif hidden.element_size() == 1:
        block_width *= 2
    if block_width >= E:  # a loop of one turn cannot be pipelined
        num_stages = 1
    if R <= 64:
        block_rows, num_warps = 64, 4
    blocks = triton.cdiv(R, block_rows) * tile_max.shape[1]
    programs = min(_num_multiprocessors(hidden.device), blocks)
    _lm_head_tiles_kernel[(programs,)](
        TensorDescriptor.from_tensor(hidden, [block_rows, block_width]),
        TensorDescriptor.from_tensor(weight, [TILE, block_width]),
        TensorDescriptor.from_tensor(relative, [block_rows, TILE]),
        tile_max,
        tile_sum,
        scales[0] if scales else tile_max,
        scales[1] if scales else tile_max,
        R,
        E=E,
        vocab_size=vocab_size,
        num_tokens=num_tokens,
        NUM_TILES=tile_max.shape[1],
        NUM_PROGRAMS=programs,
        BLOCK_R=block_rows,
        BLOCK_V=TILE,
        BLOCK_E=block_width,
        PRECISION="ieee" if hidden.dtype == torch.float32 else "tf32",
        HAS_SCALES=scales is not None,
        num_warps=num_warps,
        num_stages=num_stages,
    )


def _num_multiprocessors(device: torch.device) -> int:
    """How many persistent programs fill the device; under the interpreter a few."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def lm_head_tiles(
    hidden: Tensor,
    weight: Tensor,
    relative: Tensor,
    tile_max: Tensor,
    tile_sum: Tensor,
    vocab_size: int,
    num_tokens: int,
    scales: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Multiply by the vocabulary and write logits relative to their tile's maximum.

    A logit near 20 has steps of 0.125 in bf16; the distance to its tile's fp32 maximum, in fp16,
    is exact where it matters: 0 for the best of a tile and 11 bits for those near it.
    Rows of `weight` from `num_tokens` on are never candidates (-inf in `relative`); rows from
    `vocab_size` on are padding and count nowhere.

    Shapes:
        hidden [R, E]; weight [V_padded, E]; relative [R, V_padded], fp16 or fp32, written;
        tile_max, tile_sum [R, num_tiles], fp32, written: the maximum over a tile's candidates (over
        its real rows if it has none) and the sum of exp(logit - maximum) over its real rows;
        scales [R] and [V_padded], fp32: of the rows of `hidden` and `weight` if these are quantised
    """
    run = lm_head_tiles_triton if hidden.is_cuda else lm_head_tiles_reference
    run(hidden, weight, relative, tile_max, tile_sum, vocab_size, num_tokens, scales)
