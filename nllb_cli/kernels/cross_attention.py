"""Decoder cross-attention of one step: keys and values are read once for all beams."""

import math

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton


def cross_decode_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    lengths: Tensor,
    slot_ids: Tensor,
    beam_size: int,
) -> Tensor:
    """The twin of `cross_decode_attention`."""
    _, H, D = k.shape
    out = q.new_zeros(len(slot_ids), beam_size, H, D)
    is_active = slot_ids >= 0
    slots = slot_ids[is_active].long()  # [B]
    if not len(slots):
        return out.flatten(2).flatten(0, 1)
    queries = q.view(-1, beam_size, H, D)[is_active].float()  # [B, K, H, D]
    length = lengths[slots].long()[:, None]
    position = torch.arange(int(length.max()), device=q.device)  # [S]
    place = starts[slots].long()[:, None] + position.minimum(length - 1)  # [B, S]
    scores = torch.einsum("bkhd,bshd->bkhs", queries, k[place].float()) * D**-0.5
    scores.masked_fill_((position >= length)[:, None, None], float("-inf"))
    attended = torch.einsum("bkhs,bshd->bkhd", scores.softmax(-1), v[place].float())
    out[is_active] = attended.to(out.dtype)
    return out.flatten(2).flatten(0, 1)


@triton.jit
def _cross_attention_dot_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    starts_ptr,
    lengths_ptr,
    slot_ids_ptr,
    out_ptr,
    position_stride,
    head_stride,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """One head of one sentence: its beams, padded to a matrix, meet the keys in matrix products."""
    b = (tl.program_id(0) // H).to(tl.int64)
    head = (tl.program_id(0) % H).to(tl.int64)
    beam = tl.arange(0, BLOCK_K)
    is_beam = (beam < K)[:, None]
    column = tl.arange(0, D)
    offset = (b * K + beam)[:, None] * (H * D) + head * D + column[None, :]  # [BLOCK_K, D]
    q = tl.load(q_ptr + offset, mask=is_beam, other=0.0)

    slot = tl.load(slot_ids_ptr + b)
    is_active = slot >= 0
    slot = tl.maximum(slot, 0).to(tl.int64)
    first = tl.load(starts_ptr + slot).to(tl.int64)
    length = tl.where(is_active, tl.load(lengths_ptr + slot), 0)

    best = tl.full([BLOCK_K], -1.0e38, tl.float32)
    total = tl.zeros([BLOCK_K], tl.float32)
    attended = tl.zeros([BLOCK_K, D], tl.float32)
    lane = tl.arange(0, BLOCK_S)
    for start in tl.range(0, length, BLOCK_S, num_stages=NUM_STAGES):
        is_source = start + lane < length  # [BLOCK_S]
        place = (first + start + lane) * position_stride + head * head_stride
        place = place[:, None] + column[None, :]  # [BLOCK_S, D]
        k = tl.load(k_ptr + place, mask=is_source[:, None], other=0.0)
        v = tl.load(v_ptr + place, mask=is_source[:, None], other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE  # [BLOCK_K, BLOCK_S]
        score = tl.where(is_source[None, :], score, -3.0e38)
        new_best = tl.maximum(best, tl.max(score, axis=1))
        shrink = tl.exp2(best - new_best)
        weight = tl.exp2(score - new_best[:, None])
        total = total * shrink + tl.sum(weight, axis=1)
        weighted = tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        attended = attended * shrink[:, None] + weighted
        best = new_best
    out = attended / tl.where(is_active, total, 1.0)[:, None]
    tl.store(out_ptr + offset, out.to(out_ptr.dtype.element_ty), mask=is_beam)


@triton.jit
def _cross_attention_rows_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    starts_ptr,
    lengths_ptr,
    slot_ids_ptr,
    out_ptr,
    position_stride,
    head_stride,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_R: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Some rows of one sentence: its beams ask for one key in one load, products in registers."""
    # all (head, beam) pairs in a row, beams fastest: a sentence's beams lie in neighbouring threads
    ROW_BLOCKS: tl.constexpr = (H * K + BLOCK_R - 1) // BLOCK_R
    row = tl.program_id(0) % ROW_BLOCKS * BLOCK_R + tl.arange(0, BLOCK_R)
    beam, head, is_row = row % K, row // K, row < H * K  # [R]
    column = tl.arange(0, D)[None, :]
    b = (tl.program_id(0) // ROW_BLOCKS).to(tl.int64)
    offset = (b * K + beam)[:, None] * (H * D) + head[:, None] * D + column  # [R, D]
    q = tl.load(q_ptr + offset, mask=is_row[:, None], other=0.0).to(tl.float32) * SCALE

    slot = tl.load(slot_ids_ptr + b)
    is_active = slot >= 0
    slot = tl.maximum(slot, 0).to(tl.int64)
    first = tl.load(starts_ptr + slot).to(tl.int64)
    length = tl.where(is_active, tl.load(lengths_ptr + slot), 0)

    # each warp of BLOCK_W runs a softmax of its own over its part of a tile
    best = tl.full([BLOCK_R, BLOCK_W], -1.0e38, tl.float32)
    total = tl.zeros([BLOCK_R, BLOCK_W], tl.float32)
    attended = tl.zeros([BLOCK_R, BLOCK_W, D], tl.float32)
    lane = tl.arange(0, BLOCK_W)[:, None] * BLOCK_S + tl.arange(0, BLOCK_S)[None, :]
    lane = lane[None, :, :]  # [1, W, BLOCK_S]
    head_place = (head.to(tl.int64)[:, None] * head_stride + column)[:, None, None, :]
    for start in tl.range(0, length, BLOCK_W * BLOCK_S, num_stages=NUM_STAGES):
        is_source = (start + lane < length) & is_row[:, None, None]  # [R, W, BLOCK_S]
        place = ((first + start + lane) * position_stride)[:, :, :, None] + head_place
        k = tl.load(k_ptr + place, mask=is_source[:, :, :, None], other=0.0)  # [R, W, BLOCK_S, D]
        v = tl.load(v_ptr + place, mask=is_source[:, :, :, None], other=0.0)
        score = tl.sum(q[:, None, None, :] * k.to(tl.float32), axis=3)  # [R, W, BLOCK_S]
        score = tl.where(is_source, score, -3.0e38)  # below the first `best`: its weight is 0
        new_best = tl.maximum(best, tl.max(score, axis=2))
        shrink = tl.exp2(best - new_best)
        weight = tl.exp2(score - new_best[:, :, None])
        total = total * shrink + tl.sum(weight, axis=2)
        weighted = tl.sum(weight[:, :, :, None] * v.to(tl.float32), axis=2)  # [R, W, D]
        attended = attended * shrink[:, :, None] + weighted
        best = new_best
    shrink = tl.exp2(best - tl.max(best, axis=1)[:, None])  # [R, W]
    row_total = tl.sum(total * shrink, axis=1)
    out = tl.sum(attended * shrink[:, :, None], axis=1)  # [R, D]
    out = out / tl.where(is_row & is_active, row_total, 1.0)[:, None]
    tl.store(out_ptr + offset, out.to(out_ptr.dtype.element_ty), mask=is_row[:, None])


def cross_decode_attention_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    lengths: Tensor,
    slot_ids: Tensor,
    beam_size: int,
    *,
    use_dot: bool | None = None,
    block_s: int | None = None,
    block_r: int = 4,
    block_w: int = 1,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> Tensor:
    """The kernels of `cross_decode_attention`: matrix products, or rows for few beams."""
    n, K, (_, H, D) = len(slot_ids), beam_size, k.shape
    # fp32 has no matrix units, and would spill
    use_dot = K > 2 and q.dtype != torch.float32 if use_dot is None else use_dot
    assert q.shape == (n * K, H * D)
    assert q.is_contiguous()
    assert k.stride() == v.stride()
    assert k.stride(2) == 1
    out = torch.empty_like(q)
    if not n:
        return out
    arguments = (q, k, v, starts, lengths, slot_ids, out, k.stride(0), k.stride(1))
    sizes = {"SCALE": D**-0.5 * math.log2(math.e), "K": K, "H": H, "D": D}
    if use_dot:
        _cross_attention_dot_kernel[(n * H,)](
            *arguments,
            **sizes,
            BLOCK_S=block_s or 16,
            BLOCK_K=max(16, triton.next_power_of_2(K)),  # the least that a matrix product takes
            NUM_STAGES=num_stages or 3,
            num_warps=num_warps or 1,
        )
    else:
        _cross_attention_rows_kernel[(n * triton.cdiv(H * K, block_r),)](
            *arguments,
            **sizes,
            BLOCK_S=block_s or 8,
            BLOCK_R=block_r,
            BLOCK_W=block_w,
            NUM_STAGES=num_stages or 1,
            num_warps=num_warps or block_w * max(1, block_r * D // 256),  # 16 bytes a thread
        )
    return out


def cross_decode_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    lengths: Tensor,
    slot_ids: Tensor,
    beam_size: int,
) -> Tensor:
    """Attend from each beam to its sentence's encoder output.

    The keys of slot s = slot_ids[b] are k[starts[s] : starts[s] + lengths[s]], for all its beams.
    Where slot_ids[b] < 0 nothing is read: the rows of b come out as zeros.

    Shapes:
        q, result [n*K, H*D]; k, v [P, H, D]; starts, lengths [slots]; slot_ids [n]
    """
    run = cross_decode_attention_triton if q.is_cuda else cross_decode_attention_reference
    return run(q, k, v, starts, lengths, slot_ids, beam_size)
