"""Encoder self-attention over sentences packed one after another, without padding."""

import math

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton


def encoder_attention_reference(
    qkv: Tensor, starts: Tensor, max_length: int, num_heads: int
) -> Tensor:
    """The twin of `encoder_attention`: pads, attends under a mask, packs again."""
    N, H, D = len(qkv), num_heads, qkv.shape[1] // (3 * num_heads)
    if not N:
        return qkv.new_empty(0, H * D)
    first, length = starts[:-1, None].long(), starts.diff()[:, None]
    position = torch.arange(max_length, device=qkv.device)
    is_source = position < length  # [B, S]
    padded = qkv[first + position.minimum(length - 1)].float()  # [B, S, 3E]
    q, k, v = padded.unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)  # [B, H, S, D]
    mask = is_source[:, None, None]
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)[is_source].to(qkv.dtype)


@triton.jit
def _encoder_attention_kernel(
    qkv_ptr,
    starts_ptr,
    out_ptr,
    SCALE: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_S: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    head = tl.program_id(0) % H
    b = tl.program_id(0) // H
    first = tl.load(starts_ptr + b).to(tl.int64)
    length = (tl.load(starts_ptr + b + 1) - first).to(tl.int32)
    query = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    if tl.program_id(1) * BLOCK_Q < length:
        is_query = (query < length)[:, None]
        column = head * D + tl.arange(0, D)[None, :]
        row = (first + query)[:, None]
        q = tl.load(qkv_ptr + row * (3 * H * D) + column, mask=is_query, other=0.0)
        best = tl.full([BLOCK_Q], -1.0e38, tl.float32)
        total = tl.zeros([BLOCK_Q], tl.float32)
        attended = tl.zeros([BLOCK_Q, D], tl.float32)
        lane = tl.arange(0, BLOCK_S)
        for start in tl.range(0, length, BLOCK_S, num_stages=NUM_STAGES):
            is_source = start + lane < length  # [BLOCK_S]
            place = (first + start + lane)[:, None] * (3 * H * D) + column  # [BLOCK_S, D]
            k = tl.load(qkv_ptr + place + H * D, mask=is_source[:, None], other=0.0)
            v = tl.load(qkv_ptr + place + 2 * H * D, mask=is_source[:, None], other=0.0)
            score = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE  # [BLOCK_Q, BLOCK_S]
            score = tl.where(is_source[None, :], score, -3.0e38)
            new_best = tl.maximum(best, tl.max(score, axis=1))
            shrink = tl.exp2(best - new_best)
            weight = tl.exp2(score - new_best[:, None])
            total = total * shrink + tl.sum(weight, axis=1)
            weighted = tl.dot(weight.to(v.dtype), v, input_precision="ieee")
            attended = attended * shrink[:, None] + weighted
            best = new_best
        out = (attended / total[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * (H * D) + column, out, mask=is_query)


def encoder_attention_triton(
    qkv: Tensor,
    starts: Tensor,
    max_length: int,
    num_heads: int,
    *,
    block_q: int | None = None,
    block_s: int | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
) -> Tensor:
    """The kernel of `encoder_attention`: a program takes some queries of one head and sentence."""
    N, H, D = len(qkv), num_heads, qkv.shape[1] // (3 * num_heads)
    # one size for all lengths, so that a sentence's result does not depend on its batch mates;
    # fp32 products need tiles that registers hold
    tile = 16 if qkv.dtype == torch.float32 else 64
    block_q, block_s = block_q or tile, block_s or tile
    num_stages = num_stages or (1 if qkv.dtype == torch.float32 else 2)
    assert qkv.shape[1] == 3 * H * D
    assert qkv.is_contiguous()
    out = torch.empty(N, H * D, dtype=qkv.dtype, device=qkv.device)
    if N:
        _encoder_attention_kernel[((len(starts) - 1) * H, triton.cdiv(max_length, block_q))](
            qkv,
            starts,
            out,
            SCALE=D**-0.5 * math.log2(math.e),
            H=H,
            D=D,
            BLOCK_Q=block_q,
            BLOCK_S=block_s,
            NUM_STAGES=num_stages,
            num_warps=num_warps,
        )
    return out


def encoder_attention(qkv: Tensor, starts: Tensor, max_length: int, num_heads: int) -> Tensor:
    """Attend within each sentence; sentence b is rows starts[b] to starts[b + 1] (cumulative).

    `max_length` is the length of the longest sentence, known on the host.

    Shapes:
        qkv [N, 3*E]; starts [B+1] int32; result [N, E]
    """
    run = encoder_attention_triton if qkv.is_cuda else encoder_attention_reference
    return run(qkv, starts, max_length, num_heads)
