"""The best logits and the log-sum-exp of a row, merged from the tiles of the lm_head product."""

import torch
from torch import Tensor

from nllb_cli.kernels.lm_head import TILE
from nllb_cli.kernels.optional_triton import tl, triton
from nllb_cli.kernels.ordering import LOWEST_KEY, key_index, key_value, ordered_key

MOST_IN_ROUNDS = 16
"""Up to so many, one after the other is quicker than a sort."""


def merge_tiles_reference(
    relative: Tensor, tile_max: Tensor, tile_sum: Tensor, num_tokens: int, num_best: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The twin of `merge_tiles`."""
    lse = (tile_max + tile_sum.log()).logsumexp(1)
    peak = tile_max.repeat_interleave(TILE, 1)[:, :num_tokens]
    logits = relative[:, :num_tokens].float() + peak
    values, ids = logits.sort(dim=1, descending=True, stable=True)
    return values[:, :num_best].contiguous(), ids[:, :num_best].to(torch.int32).contiguous(), lse


@triton.jit
def _merge_tiles_kernel(
    relative_ptr,
    max_ptr,
    sum_ptr,
    values_ptr,
    ids_ptr,
    lse_ptr,
    num_candidate_tiles,
    V_PADDED: tl.constexpr,
    NUM_TILES: tl.constexpr,
    NUM_BEST: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_BEST: tl.constexpr,
    BLOCK_V: tl.constexpr,
    ROUNDS: tl.constexpr,
    NO_TOKEN: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, BLOCK_TILES)
    peaks = _store_log_sum_exp(max_ptr, sum_ptr, lse_ptr, row, tile, NUM_TILES)

    # the best NUM_BEST logits lie in the NUM_BEST tiles with the highest maxima
    best = tl.arange(0, BLOCK_BEST)
    best_tile = tl.full((BLOCK_BEST,), -1, tl.int32)
    best_peak = tl.full((BLOCK_BEST,), float("-inf"), tl.float32)
    peaks = tl.where(tile < num_candidate_tiles, peaks, float("-inf"))
    for i in range(NUM_BEST):
        peak = tl.max(peaks, 0)
        index = tl.min(tl.where(peaks == peak, tile, BLOCK_TILES), 0)
        best_tile = tl.where(best == i, index, best_tile)
        best_peak = tl.where(best == i, peak, best_peak)
        peaks = tl.where(tile == index, float("-inf"), peaks)

    column = best_tile[:, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
    is_candidate = (best_peak[:, None] > float("-inf")) & (column < V_PADDED)
    shifted = tl.load(
        relative_ptr + row * V_PADDED + column, mask=is_candidate, other=float("-inf")
    )
    logits = shifted.to(tl.float32) + best_peak[:, None]  # [BLOCK_BEST, BLOCK_V]

    # a few rounds, each taking every tile's best, as a rule hold all of the row's best
    round_index = tl.arange(0, ROUNDS)
    value = tl.full((BLOCK_BEST, ROUNDS), float("-inf"), tl.float32)
    token = tl.full((BLOCK_BEST, ROUNDS), NO_TOKEN, tl.int32)
    rest = logits
    for i in tl.static_range(ROUNDS):
        peak, winner = _best_of_tiles(rest, column, NO_TOKEN)
        value = tl.where(round_index[None, :] == i, peak[:, None], value)
        token = tl.where(round_index[None, :] == i, winner[:, None], token)
        rest = tl.where(column == winner[:, None], float("-inf"), rest)
    value = tl.reshape(value, (BLOCK_BEST * ROUNDS,))
    token = tl.reshape(token, (BLOCK_BEST * ROUNDS,))
    out_values, out_ids = values_ptr + row * NUM_BEST, ids_ptr + row * NUM_BEST
    worst = _store_best(value, token, out_values, out_ids, NUM_BEST, NO_TOKEN)
    if tl.max(tl.max(rest, 1), 0) >= worst:  # one tile holds more of the best: look at all
        every_value = tl.reshape(logits, (BLOCK_BEST * BLOCK_V,))
        every_token = tl.reshape(column, (BLOCK_BEST * BLOCK_V,))
        _store_best(every_value, every_token, out_values, out_ids, NUM_BEST, NO_TOKEN)


@triton.jit
def _store_log_sum_exp(max_ptr, sum_ptr, lse_ptr, row, tile, NUM_TILES: tl.constexpr):
    """Store a row's log-sum-exp and return its tiles' maxima."""
    is_tile = tile < NUM_TILES
    peaks = tl.load(max_ptr + row * NUM_TILES + tile, mask=is_tile, other=float("-inf"))
    sums = tl.load(sum_ptr + row * NUM_TILES + tile, mask=is_tile, other=0.0)
    top = tl.max(peaks, 0)
    tl.store(lse_ptr + row, top + tl.log(tl.sum(sums * tl.exp(peaks - top), 0)))
    return peaks


@triton.jit
def _best_of_tiles(logits, column, NO_TOKEN: tl.constexpr):
    """Return each tile's best logit and its id, of equal ones the lowest."""
    peak = tl.max(logits, 1)
    return peak, tl.min(tl.where(logits == peak[:, None], column, NO_TOKEN), 1)


@triton.jit
def _store_best(value, token, values_ptr, ids_ptr, NUM_BEST: tl.constexpr, NO_TOKEN: tl.constexpr):
    """Store the best in order, of equal ones the lowest id first; return the last of them."""
    best = tl.max(value, 0)
    for i in range(NUM_BEST):
        best = tl.max(value, 0)
        best_id = tl.min(tl.where(value == best, token, NO_TOKEN), 0)
        tl.store(values_ptr + i, best)
        tl.store(ids_ptr + i, best_id)
        value = tl.where(token == best_id, float("-inf"), value)
    return best


@triton.jit
def _merge_many_kernel(
    relative_ptr,
    max_ptr,
    sum_ptr,
    values_ptr,
    ids_ptr,
    lse_ptr,
    scratch_ptr,
    num_candidate_tiles,
    V_PADDED: tl.constexpr,
    NUM_TILES: tl.constexpr,
    NUM_BEST: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_BEST: tl.constexpr,
    BLOCK_V: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPACITY: tl.constexpr,
):
    """As `_merge_tiles_kernel`, for many: find a threshold, list what passes it, sort the list."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, BLOCK_TILES)
    peaks = _store_log_sum_exp(max_ptr, sum_ptr, lse_ptr, row, tile, NUM_TILES)
    peaks = tl.where(tile < num_candidate_tiles, peaks, float("-inf"))
    relative_ptr += row * V_PADDED
    tiles_ptr = scratch_ptr + row * (BLOCK_BEST + CAPACITY)
    best = tl.arange(0, BLOCK_BEST)

    # the best NUM_BEST logits lie in the NUM_BEST tiles with the highest maxima, and none of them
    # is below the lowest of these maxima
    best_tiles = tl.topk(ordered_key(peaks, tile), BLOCK_BEST)
    tl.store(tiles_ptr + best, best_tiles)
    best_peaks = key_value(best_tiles)
    low = tl.max(tl.where(best == NUM_BEST - 1, best_peaks, float("-inf")), 0)
    high = tl.max(best_peaks, 0)
    threshold = low
    count = 0
    turns = 0
    while ((count > CAPACITY) | (count < NUM_BEST)) & (turns < 20):
        tl.debug_barrier()  # the tiles are there, and what was listed before is no longer needed
        count = _list_above(
            relative_ptr,
            tiles_ptr,
            threshold,
            NUM_BEST,
            BLOCK_BEST,
            BLOCK_V,
            V_PADDED,
            CHUNK,
            CAPACITY,
        )
        low = tl.where(count > CAPACITY, threshold, low)
        high = tl.where(count > CAPACITY, high, threshold)
        threshold = 0.5 * low + 0.5 * high
        turns += 1
    values_ptr += row * NUM_BEST
    ids_ptr += row * NUM_BEST
    if (count <= CAPACITY) & (count >= NUM_BEST):
        tl.debug_barrier()
        place = tl.arange(0, CAPACITY)
        listed = tl.load(tiles_ptr + BLOCK_BEST + place, mask=place < count, other=LOWEST_KEY)
        keys = tl.topk(listed, BLOCK_BEST)
        tl.store(values_ptr + best, key_value(keys), mask=best < NUM_BEST)
        tl.store(ids_ptr + best, key_index(keys), mask=best < NUM_BEST)
    else:  # so many are equal that no threshold parts them: take one after the other
        last = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
        for i in range(NUM_BEST):
            top = tl.full((), LOWEST_KEY, tl.int64)
            for first in range(0, NUM_BEST, CHUNK):
                keys = _chunk_keys(
                    relative_ptr, tiles_ptr, first, NUM_BEST, BLOCK_V, V_PADDED, CHUNK
                )
                keys = tl.reshape(tl.where(keys < last, keys, LOWEST_KEY), (CHUNK * BLOCK_V,))
                top = tl.maximum(top, tl.max(keys, 0))
            is_token = top != LOWEST_KEY
            tl.store(values_ptr + i, tl.where(is_token, key_value(top), float("-inf")))
            tl.store(ids_ptr + i, tl.where(is_token, key_index(top), 0))
            last = top


@triton.jit
def _chunk_keys(
    relative_ptr,
    tiles_ptr,
    first,
    NUM_BEST: tl.constexpr,
    BLOCK_V: tl.constexpr,
    V_PADDED: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Return the keys of all candidates of some of the best tiles. Shapes: [CHUNK, BLOCK_V]."""
    place = first + tl.arange(0, CHUNK)
    key = tl.load(tiles_ptr + place, mask=place < NUM_BEST, other=LOWEST_KEY)
    peak = key_value(key)[:, None]
    column = key_index(key)[:, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
    is_real = (key != LOWEST_KEY)[:, None] & (column < V_PADDED) & (column >= 0)
    shifted = tl.load(relative_ptr + column, mask=is_real, other=float("-inf")).to(tl.float32)
    is_candidate = is_real & (shifted > float("-inf"))
    return tl.where(is_candidate, ordered_key(shifted + peak, column), LOWEST_KEY)


@triton.jit
def _list_above(
    relative_ptr,
    tiles_ptr,
    threshold,
    NUM_BEST: tl.constexpr,
    BLOCK_BEST: tl.constexpr,
    BLOCK_V: tl.constexpr,
    V_PADDED: tl.constexpr,
    CHUNK: tl.constexpr,
    CAPACITY: tl.constexpr,
):
    """Write the keys of candidates that reach the threshold behind the tiles; return their number.

    Beyond the capacity they are only counted.
    """
    count = 0
    lowest = ordered_key(threshold, tl.full((), 0x7FFFFFFF, tl.int32))
    for first in range(0, NUM_BEST, CHUNK):
        keys = _chunk_keys(relative_ptr, tiles_ptr, first, NUM_BEST, BLOCK_V, V_PADDED, CHUNK)
        keys = tl.reshape(keys, (CHUNK * BLOCK_V,))
        passes = (keys >= lowest).to(tl.int32)
        rank = count + tl.cumsum(passes, 0) - 1
        is_listed = (passes > 0) & (rank < CAPACITY)
        tl.store(tiles_ptr + BLOCK_BEST + rank, keys, mask=is_listed)
        count += tl.sum(passes, 0)
    return count


def merge_tiles_triton(
    relative: Tensor,
    tile_max: Tensor,
    tile_sum: Tensor,
    num_tokens: int,
    num_best: int,
    *,
    num_warps: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of `merge_tiles`, one program a row."""
    R, V_padded = relative.shape
    assert relative.is_contiguous()
    assert tile_max.is_contiguous()
    assert tile_sum.is_contiguous()
    assert num_best <= num_tokens
    num_candidate_tiles = triton.cdiv(num_tokens, TILE)
    is_many = num_best > MOST_IN_ROUNDS and num_candidate_tiles >= num_best
    block_best = triton.next_power_of_2(num_best)
    values = torch.empty(R, num_best, dtype=torch.float32, device=relative.device)
    ids = torch.empty(R, num_best, dtype=torch.int32, device=relative.device)
    lse = torch.empty(R, dtype=torch.float32, device=relative.device)
    if is_many:
        capacity = 4 * block_best
        size = block_best + capacity
        _merge_many_kernel[(R,)](
            relative,
            tile_max,
            tile_sum,
            values,
            ids,
            lse,
            torch.empty(R, size, dtype=torch.int64, device=relative.device),
            num_candidate_tiles,
            V_PADDED=V_padded,
            NUM_TILES=tile_max.shape[1],
            NUM_BEST=num_best,
            BLOCK_TILES=triton.next_power_of_2(tile_max.shape[1]),
            BLOCK_BEST=block_best,
            BLOCK_V=TILE,
            CHUNK=8,
            CAPACITY=capacity,
            num_warps=num_warps or 4,
        )
        return values, ids, lse
    _merge_tiles_kernel[(R,)](
        relative,
        tile_max,
        tile_sum,
        values,
        ids,
        lse,
        num_candidate_tiles,
        V_PADDED=V_padded,
        NUM_TILES=tile_max.shape[1],
        NUM_BEST=num_best,
        BLOCK_TILES=triton.next_power_of_2(tile_max.shape[1]),
        BLOCK_BEST=block_best,
        BLOCK_V=TILE,
        ROUNDS=1 if num_best == 1 else 4,
        NO_TOKEN=torch.iinfo(torch.int32).max,
        num_warps=num_warps or max(4, block_best // 4),
    )
    return values, ids, lse


def merge_tiles(
    relative: Tensor, tile_max: Tensor, tile_sum: Tensor, num_tokens: int, num_best: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best logits of each row, their ids and the row's log-sum-exp.

    The best come in descending order, of equal ones the lowest id first. A row with NaN or
    infinite logits has a log-sum-exp that is not finite.

    Shapes:
        relative, tile_max, tile_sum: as `lm_head_tiles` writes them;
        result: values [R, num_best] fp32, ids [R, num_best] int32, lse [R] fp32
    """
    run = merge_tiles_triton if relative.is_cuda else merge_tiles_reference
    return run(relative, tile_max, tile_sum, num_tokens, num_best)
