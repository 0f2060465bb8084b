"""Waiting entries take the slots that are free, on the device."""

from typing import NamedTuple

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton
from nllb_cli.kernels.search import ABSENT, SearchState, StepIO

HEAD, TAIL, NUM_DONE, NUM_ACTIVE = 0, 1, 2, 3
"""Places in `Queue.counters`."""


class Queue(NamedTuple):
    """Entries that wait, and entries that are done.

    Shapes:
        counters [4] int32: waiting entries are waiting[head % Q … tail % Q]; NUM_DONE counts all
            entries ever done, NUM_ACTIVE the slots that work after the last step
        waiting [Q] int32; done [Q] int32, both rings of entries
        source_start, source_length, prefix, language, limit [entries] int32: what an entry is:
            its rows in the pool of cross-attention keys and values, the row of its start token's
            self-attention keys and values, its language token, its token limit
    """

    counters: Tensor
    waiting: Tensor
    done: Tensor
    source_start: Tensor
    source_length: Tensor
    prefix: Tensor
    language: Tensor
    limit: Tensor


class SlotSource(NamedTuple):
    """Where a slot's cross-attention rows are. Shapes: start, length, prefix [slots] int32."""

    start: Tensor
    length: Tensor
    prefix: Tensor


def admit_reference(state: SearchState, source: SlotSource, queue: Queue, io: StepIO) -> None:
    """The twin of `admit`."""
    K, Q = state.log_prob.shape[1], len(queue.waiting)
    head, tail, num_done, _ = queue.counters.tolist()
    num_active = 0
    for place, slot in enumerate(io.slot_ids.tolist()):
        if io.finished[place] >= 0:
            queue.done[num_done % Q] = io.finished[place]
            num_done += 1
        if state.entry[slot] < 0:
            rows = slice(place * K, (place + 1) * K)
            io.positions[rows] = 2
            if head == tail:
                io.next_tokens[rows] = 0
                state.length[slot] = 1
                source.start[slot], source.length[slot], source.prefix[slot] = 1, 1, 0
                continue
            entry = int(queue.waiting[head % Q])
            head += 1
            state.entry[slot], state.length[slot] = entry, 1
            state.limit[slot] = queue.limit[entry]
            state.log_prob[slot] = ABSENT
            state.log_prob[slot, 0] = 0.0
            state.final_score[slot] = float("-inf")
            state.tokens[slot, 1] = queue.language[entry]
            io.next_tokens[rows] = queue.language[entry]
            source.start[slot] = queue.source_start[entry]
            source.prefix[slot] = queue.prefix[entry]
            source.length[slot] = queue.source_length[entry]
        num_active += 1
    counters = [head, tail, num_done, num_active]
    queue.counters.copy_(torch.tensor(counters, dtype=torch.int32))


@triton.jit
def _admit_kernel(
    entry_ptr,
    length_ptr,
    limit_ptr,
    log_prob_ptr,
    final_ptr,
    tokens_ptr,
    start_ptr,
    source_length_ptr,
    prefix_ptr,
    counters_ptr,
    waiting_ptr,
    done_ptr,
    entry_start_ptr,
    entry_length_ptr,
    entry_prefix_ptr,
    language_ptr,
    entry_limit_ptr,
    slot_ids_ptr,
    next_tokens_ptr,
    positions_ptr,
    finished_ptr,
    n,
    Q,
    T,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.load(counters_ptr)
    tail = tl.load(counters_ptr + 1)
    num_done = tl.load(counters_ptr + 2)
    num_active = num_done * 0
    for first in range(0, n, BLOCK):
        place = first + tl.arange(0, BLOCK)
        is_place = place < n
        slot = tl.load(slot_ids_ptr + place, mask=is_place, other=0).to(tl.int64)
        finished = tl.load(finished_ptr + place, mask=is_place, other=-1)
        is_done = finished >= 0
        rank = tl.cumsum(tl.where(is_done, 1, 0), 0) - 1
        tl.store(done_ptr + (num_done + rank) % Q, finished, mask=is_done)
        num_done += tl.sum(tl.where(is_done, 1, 0), 0)

        old_entry = tl.load(entry_ptr + slot, mask=is_place, other=0)
        is_free = is_place & (old_entry < 0)
        rank = tl.cumsum(tl.where(is_free, 1, 0), 0) - 1
        takes = is_free & (head + rank < tail)
        entry = tl.load(waiting_ptr + (head + rank) % Q, mask=takes, other=-1)
        num_taken = tl.sum(tl.where(takes, 1, 0), 0)
        head += num_taken
        is_working = is_place & ((old_entry >= 0) | takes)
        num_active += tl.sum(tl.where(is_working, 1, 0), 0)
        start = tl.load(entry_start_ptr + entry, mask=takes, other=1)
        source_length = tl.load(entry_length_ptr + entry, mask=takes, other=1)
        prefix = tl.load(entry_prefix_ptr + entry, mask=takes, other=0)
        language = tl.load(language_ptr + entry, mask=takes, other=0)
        limit = tl.load(entry_limit_ptr + entry, mask=takes, other=0)
        tl.store(entry_ptr + slot, entry, mask=takes)
        tl.store(length_ptr + slot, 1, mask=is_free)
        tl.store(limit_ptr + slot, limit, mask=takes)
        tl.store(start_ptr + slot, start, mask=is_free)
        tl.store(source_length_ptr + slot, source_length, mask=is_free)
        tl.store(prefix_ptr + slot, prefix, mask=is_free)
        for k in tl.static_range(K):
            fresh = 0.0 if k == 0 else -1.0e9
            tl.store(log_prob_ptr + slot * K + k, fresh, mask=takes)
            tl.store(final_ptr + slot * K + k, float("-inf"), mask=takes)
            tl.store(tokens_ptr + (slot * T + 1) * K + k, language, mask=takes)
            tl.store(next_tokens_ptr + place * K + k, language, mask=is_free)
            tl.store(positions_ptr + place * K + k, 2, mask=is_free)  # the second token
    tl.store(counters_ptr, head)
    tl.store(counters_ptr + 2, num_done)
    tl.store(counters_ptr + 3, num_active)


def admit_triton(
    state: SearchState,
    source: SlotSource,
    queue: Queue,
    io: StepIO,
    *,
    block: int = 1024,
    num_warps: int = 8,
) -> None:
    """The kernel of `admit`: one program, since places are handed out in order."""
    n = len(io.slot_ids)
    _admit_kernel[(1,)](
        *state[:6],
        *source,
        *queue,
        *io,
        n,
        len(queue.waiting),
        state.tokens.shape[1],
        K=state.log_prob.shape[1],
        BLOCK=block,  # whatever n: a kernel for each would be compiled at a job's end
        num_warps=num_warps,
    )


def admit(state: SearchState, source: SlotSource, queue: Queue, io: StepIO) -> None:
    """Note the entries that are done and give each free slot of the batch a waiting entry.

    A slot that stays free reads one row of the pool at position 1, so that attention over it costs
    little and touches nothing of others.
    """
    run = admit_triton if queue.counters.is_cuda else admit_reference
    run(state, source, queue, io)
