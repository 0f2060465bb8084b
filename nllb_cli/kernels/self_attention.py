"""Decoder self-attention of one step, over a cache that beams share through an indirection table.

Position 0 is the decoder start token, the same for all beams and targets of a sentence, which share
one row for its key and value. Position `length` is the token of this step, taken from `qkv` and
written to the cache. The positions between are read from the row of the beam that the table names,
so that nothing is copied when beams change places.
"""

import math

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton


def self_decode_attention_reference(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indirection: Tensor,
    lengths: Tensor,
    prefix_k: Tensor,
    prefix_v: Tensor,
    prefix_rows: Tensor,
    slot_ids: Tensor,
    beam_size: int,
) -> Tensor:
    """The twin of `self_decode_attention`."""
    H, D = k_cache.shape[3:]
    out = qkv.new_zeros(len(slot_ids), beam_size, H, D)
    is_active = slot_ids >= 0
    slots = slot_ids[is_active].long()  # [B]
    if not len(slots):
        return out.flatten(2).flatten(0, 1)
    q, k, v = qkv.view(-1, beam_size, 3, H, D)[is_active].unbind(2)  # [B, K, H, D]
    length, prefix = lengths[slots].long(), prefix_rows[slots].long()
    k_cache[slots, length], v_cache[slots, length] = k.to(k_cache.dtype), v.to(v_cache.dtype)
    position = torch.arange(int(length.max()) + 1, device=qkv.device)
    is_cached = (position > 0) & (position < length[:, None])  # [B, T]
    own = torch.arange(beam_size, device=qkv.device)[:, None]
    table = indirection[slots, :, : len(position)].long()
    beam = torch.where(is_cached[:, None], table, own)  # [B, K, T]
    place = (slots[:, None, None], position.minimum(length[:, None])[:, None], beam)
    keys, values = k_cache[place], v_cache[place]  # [B, K, T, H, D]
    keys[:, :, 0], values[:, :, 0] = prefix_k[prefix][:, None], prefix_v[prefix][:, None]
    scores = torch.einsum("bkhd,bkthd->bkht", q.float(), keys.float()) * D**-0.5
    scores.masked_fill_((position > length[:, None])[:, None, None], float("-inf"))
    attended = torch.einsum("bkht,bkthd->bkhd", scores.softmax(-1), values.float())
    out[is_active] = attended.to(out.dtype)
    return out.flatten(2).flatten(0, 1)


@triton.jit
def _self_attention_kernel(
    qkv_ptr,
    k_ptr,
    v_ptr,
    indirection_ptr,
    lengths_ptr,
    prefix_k_ptr,
    prefix_v_ptr,
    prefix_rows_ptr,
    slot_ids_ptr,
    out_ptr,
    slot_stride,
    position_stride,
    prefix_stride,
    T,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_T: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    # all (head, beam) pairs of a slot in a row, beams fastest: those with a common ancestor then
    # lie in neighbouring threads and ask for one address in one load
    ROW_BLOCKS: tl.constexpr = (H * K + BLOCK_R - 1) // BLOCK_R
    row = tl.program_id(0) % ROW_BLOCKS * BLOCK_R + tl.arange(0, BLOCK_R)
    beam, head, is_row = row % K, row // K, row < H * K  # [R]
    column = tl.arange(0, D)
    head_offset = head[:, None] * D + column[None, :]  # [R, D]

    b = (tl.program_id(0) // ROW_BLOCKS).to(tl.int64)
    activation_row = b * K + beam
    qkv_offset = activation_row[:, None] * (3 * H * D) + head_offset
    q = tl.load(qkv_ptr + qkv_offset, mask=is_row[:, None], other=0.0)
    k_own = tl.load(qkv_ptr + qkv_offset + H * D, mask=is_row[:, None], other=0.0)
    v_own = tl.load(qkv_ptr + qkv_offset + 2 * H * D, mask=is_row[:, None], other=0.0)
    q = q.to(tl.float32) * SCALE

    slot = tl.load(slot_ids_ptr + b)
    is_active = slot >= 0
    slot = tl.maximum(slot, 0).to(tl.int64)
    length = tl.load(lengths_ptr + slot)
    prefix_row = tl.load(prefix_rows_ptr + slot).to(tl.int64)
    length = tl.where(is_active, tl.minimum(length, T), 0)

    # each warp of BLOCK_W runs a softmax of its own over its part of a tile, so that the loop needs
    # no exchange between warps; they are brought together after it
    best = tl.full([BLOCK_R, BLOCK_W], -1.0e38, tl.float32)
    total = tl.zeros([BLOCK_R, BLOCK_W], tl.float32)
    attended = tl.zeros([BLOCK_R, BLOCK_W, D], tl.float32)
    lane = tl.arange(0, BLOCK_W)[:, None] * BLOCK_T + tl.arange(0, BLOCK_T)[None, :]
    lane, is_kept = lane[None, :, :], is_row[:, None, None]  # [1, W, BLOCK_T], [R, 1, 1]
    table_ptr = indirection_ptr + (slot * K + beam[:, None, None]) * T  # [R, 1, 1]
    k_slot_ptr = k_ptr + slot * slot_stride
    v_slot_ptr = v_ptr + slot * slot_stride
    source = tl.zeros([BLOCK_R, BLOCK_W, BLOCK_T], tl.uint8)  # a single beam needs no table
    if K > 1:
        source = tl.load(table_ptr + 1 + lane, mask=(1 + lane < T) & is_kept, other=0)
    for start in tl.range(1, length, BLOCK_W * BLOCK_T, num_stages=NUM_STAGES):
        position = start + lane
        is_cached = (position < length) & is_kept  # [R, W, BLOCK_T]
        offset = position.to(tl.int64) * position_stride + source.to(tl.int64) * (H * D)
        offset = offset[:, :, :, None] + head_offset[:, None, None, :]  # [R, W, BLOCK_T, D]
        k = tl.load(k_slot_ptr + offset, mask=is_cached[:, :, :, None], other=0.0)
        v = tl.load(v_slot_ptr + offset, mask=is_cached[:, :, :, None], other=0.0)
        if K > 1:  # the next tile's table entries travel while this one is worked on
            position += BLOCK_W * BLOCK_T
            source = tl.load(table_ptr + position, mask=(position < length) & is_kept, other=0)
        score = tl.sum(q[:, None, None, :] * k.to(tl.float32), axis=3)  # [R, W, BLOCK_T]
        score = tl.where(is_cached, score, -3.0e38)  # below the first `best`: its weight is 0
        new_best = tl.maximum(best, tl.max(score, axis=2))
        shrink = tl.exp2(best - new_best)
        weight = tl.exp2(score - new_best[:, :, None])
        total = total * shrink + tl.sum(weight, axis=2)
        weighted = tl.sum(weight[:, :, :, None] * v.to(tl.float32), axis=2)  # [R, W, D]
        attended = attended * shrink[:, :, None] + weighted
        best = new_best

    prefix_offset = prefix_row * prefix_stride + head_offset
    is_read = is_row[:, None] & is_active
    k_prefix = tl.load(prefix_k_ptr + prefix_offset, mask=is_read, other=0.0).to(tl.float32)
    v_prefix = tl.load(prefix_v_ptr + prefix_offset, mask=is_read, other=0.0).to(tl.float32)
    score_prefix = tl.sum(q * k_prefix, axis=1)  # [R]
    score_own = tl.sum(q * k_own.to(tl.float32), axis=1)
    row_best = tl.maximum(tl.max(best, axis=1), tl.maximum(score_prefix, score_own))
    shrink = tl.exp2(best - row_best[:, None])  # [R, W]
    weight_prefix = tl.exp2(score_prefix - row_best)
    weight_own = tl.exp2(score_own - row_best)
    row_total = tl.sum(total * shrink, axis=1) + weight_prefix + weight_own
    row_attended = tl.sum(attended * shrink[:, :, None], axis=1)  # [R, D]
    row_attended += weight_prefix[:, None] * v_prefix + weight_own[:, None] * v_own.to(tl.float32)
    out = tl.where(is_active, row_attended / row_total[:, None], 0.0)
    out_offset = activation_row[:, None] * (H * D) + head_offset
    tl.store(out_ptr + out_offset, out.to(out_ptr.dtype.element_ty), mask=is_row[:, None])

    is_written = is_row[:, None] & is_active & (length < T)
    own_offset = length.to(tl.int64) * position_stride + beam[:, None] * (H * D) + head_offset
    tl.store(k_slot_ptr + own_offset, k_own.to(k_ptr.dtype.element_ty), mask=is_written)
    tl.store(v_slot_ptr + own_offset, v_own.to(v_ptr.dtype.element_ty), mask=is_written)


def self_decode_attention_triton(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indirection: Tensor,
    lengths: Tensor,
    prefix_k: Tensor,
    prefix_v: Tensor,
    prefix_rows: Tensor,
    slot_ids: Tensor,
    beam_size: int,
    *,
    block_r: int = 16,
    block_w: int = 1,
    block_t: int = 8,
    num_warps: int | None = None,
    num_stages: int = 1,
) -> Tensor:
    """The kernel of `self_decode_attention`: a program takes some heads and beams of one slot."""
    n, K, (_, T, _, H, D) = len(slot_ids), beam_size, k_cache.shape
    num_warps = num_warps or block_w * max(
        1, block_r * D // 256
    )  # a thread loads 16 bytes of a bf16 row
    assert qkv.shape == (n * K, 3 * H * D)
    assert qkv.is_contiguous()
    assert indirection.shape[1:] == (K, T)
    assert indirection.is_contiguous()
    assert k_cache.shape[2] == K
    assert k_cache.stride() == v_cache.stride()
    assert k_cache.stride()[2:] == (H * D, D, 1)
    assert prefix_k.stride() == prefix_v.stride()
    assert prefix_k.stride()[1:] == (D, 1)
    out = torch.empty(n * K, H * D, dtype=qkv.dtype, device=qkv.device)
    if n:
        _self_attention_kernel[(n * triton.cdiv(H * K, block_r),)](
            qkv,
            k_cache,
            v_cache,
            indirection,
            lengths,
            prefix_k,
            prefix_v,
            prefix_rows,
            slot_ids,
            out,
            k_cache.stride(0),
            k_cache.stride(1),
            prefix_k.stride(0),
            T,
            SCALE=D**-0.5 * math.log2(math.e),
            K=K,
            H=H,
            D=D,
            BLOCK_R=block_r,
            BLOCK_W=block_w,
            BLOCK_T=block_t,
            NUM_STAGES=num_stages,
            num_warps=num_warps,
        )
    return out


def self_decode_attention(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    indirection: Tensor,
    lengths: Tensor,
    prefix_k: Tensor,
    prefix_v: Tensor,
    prefix_rows: Tensor,
    slot_ids: Tensor,
    beam_size: int,
) -> Tensor:
    """Attend from this step's token of each beam to its own past, and cache its key and value.

    Slot s = slot_ids[b] holds lengths[s] >= 1 tokens already. Position 0 is read from row
    prefix_rows[s] of the prefix, position p from k_cache[s, p, indirection[s, k, p]]. Where
    slot_ids[b] < 0 nothing runs: the rows of b come out as zeros.

    Shapes:
        qkv [n*K, 3*H*D]; k_cache, v_cache [slots, T, K, H, D]; indirection [slots, K, T] uint8
        lengths, prefix_rows [slots]; prefix_k, prefix_v [P, H, D]; slot_ids [n]
        result [n*K, H*D]
    """
    run = self_decode_attention_triton if qkv.is_cuda else self_decode_attention_reference
    return run(
        qkv,
        k_cache,
        v_cache,
        indirection,
        lengths,
        prefix_k,
        prefix_v,
        prefix_rows,
        slot_ids,
        beam_size,
    )
