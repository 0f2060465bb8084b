"""Exact logits for candidates that a coarser product has found."""

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton

Scores = tuple[Tensor, Tensor, Tensor]


def rescore_reference(hidden: Tensor, weight: Tensor, found: Scores, num_best: int) -> Scores:
    """The twin of `rescore`."""
    values, ids, lse = found
    ids, order = ids.sort(dim=1)  # so that of equal logits the lowest id comes first
    values = values.gather(1, order)
    exact = torch.einsum("re,rce->rc", hidden.float(), weight[ids.long()].float())
    top = torch.maximum(lse, exact.amax(1))
    coarse = (values - top[:, None]).exp().sum(1)
    rest = ((lse - top).exp() - coarse).clamp(min=0.0)
    lse = top + (rest + (exact - top[:, None]).exp().sum(1)).log()
    best, order = exact.sort(dim=1, descending=True, stable=True)
    ids = ids.gather(1, order)
    return best[:, :num_best].contiguous(), ids[:, :num_best].contiguous(), lse


@triton.jit
def _rescore_kernel(
    hidden_ptr,
    weight_ptr,
    values_ptr,
    ids_ptr,
    lse_ptr,
    out_values_ptr,
    out_ids_ptr,
    out_lse_ptr,
    E: tl.constexpr,
    N: tl.constexpr,
    NUM_BEST: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    candidate = tl.arange(0, BLOCK_N)
    is_candidate = candidate < N
    ids = tl.load(ids_ptr + row * N + candidate, mask=is_candidate, other=0)
    coarse = tl.load(values_ptr + row * N + candidate, mask=is_candidate, other=float("-inf"))
    lse = tl.load(lse_ptr + row)
    exact = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.static_range(0, E, BLOCK_E):
        column = start + tl.arange(0, BLOCK_E)
        is_column = column < E
        hidden = tl.load(hidden_ptr + row * E + column, mask=is_column, other=0.0)
        place = ids.to(tl.int64)[:, None] * E + column[None, :]
        weight = tl.load(
            weight_ptr + place, mask=is_candidate[:, None] & is_column[None, :], other=0.0
        )
        exact += tl.sum(weight.to(tl.float32) * hidden.to(tl.float32)[None, :], 1)
    exact = tl.where(is_candidate, exact, float("-inf"))
    top = tl.maximum(lse, tl.max(exact, 0))
    rest = tl.exp(lse - top) - tl.sum(tl.exp(coarse - top), 0)
    total = tl.maximum(rest, 0.0) + tl.sum(tl.exp(exact - top), 0)
    # the coarse sum says whether the row's scores are finite
    tl.store(out_lse_ptr + row, tl.where(lse == lse, top + tl.log(total), lse))
    # a candidate's place is the number of those before it
    is_before = (exact[None, :] > exact[:, None]) | (
        (exact[None, :] == exact[:, None]) & (ids[None, :] < ids[:, None])
    )
    place = tl.sum((is_before & is_candidate[None, :]).to(tl.int32), 1)
    is_best = is_candidate & (place < NUM_BEST)
    tl.store(out_values_ptr + row * NUM_BEST + place, exact, mask=is_best)
    tl.store(out_ids_ptr + row * NUM_BEST + place, ids, mask=is_best)


def rescore_triton(
    hidden: Tensor,
    weight: Tensor,
    found: Scores,
    num_best: int,
    *,
    block_e: int = 256,
    num_warps: int = 4,
) -> Scores:
    """The kernel of `rescore`, one program a row."""
    values, ids, lse = found
    R, N = values.shape
    E = hidden.shape[1]
    assert hidden.is_contiguous()
    assert weight.is_contiguous()
    best = torch.empty(R, num_best, dtype=torch.float32, device=hidden.device)
    best_ids = torch.empty(R, num_best, dtype=torch.int32, device=hidden.device)
    exact_lse = torch.empty_like(lse)
    _rescore_kernel[(R,)](
        hidden,
        weight,
        values,
        ids,
        lse,
        best,
        best_ids,
        exact_lse,
        E=E,
        N=N,
        NUM_BEST=num_best,
        BLOCK_N=triton.next_power_of_2(N),
        BLOCK_E=min(block_e, triton.next_power_of_2(E)),
        num_warps=num_warps,
    )
    return best, best_ids, exact_lse


def rescore(hidden: Tensor, weight: Tensor, found: Scores, num_best: int) -> Scores:
    """Replace coarse logits by exact ones and return the best of these.

    In the log-sum-exp the candidates' coarse terms give way to their exact ones; what remains
    coarse is the sum over tokens that are no candidates, whose errors even out.

    Shapes:
        hidden [R, E]; weight [V, E]; found: values [R, N] fp32, ids [R, N] int32 without repeats,
        lse [R] fp32; result: the same with num_best columns, of equal logits the lowest id first
    """
    run = rescore_triton if hidden.is_cuda else rescore_reference
    return run(hidden, weight, found, num_best)
