"""The beam step of every slot, on the device: candidates in, running beams and hypotheses out."""

from typing import NamedTuple

import torch
from torch import Tensor

from nllb_cli.kernels.optional_triton import tl, triton
from nllb_cli.kernels.ordering import key_index, key_value, ordered_key

FINISH_EOS, FINISH_LENGTH, FINISH_INVALID = 0, 1, 2
STOP_HEURISTIC, STOP_FIRST, STOP_NEVER = 0, 1, 2
"""`early_stopping` false, true and never; greedy search stops at its first hypothesis."""
ABSENT = -1.0e9
"""Log-probability of a beam that does not exist yet."""


class SearchState(NamedTuple):
    """The searches in flight, keyed by slot.

    Shapes:
        entry [slots] int32: what the slot works on, -1 where it is idle
        length [slots] int32: position of the token that this step read; the start token is at 0
        limit [slots] int32: most tokens a target may have, language token and `</s>` included
        log_prob [slots, K] fp32: of the running beams, best first
        final_score [slots, K] fp32: of the K best hypotheses in any order, -inf where none
        tokens [slots, T, K] int32: what each beam's row of the self cache holds at a position
        indirection [slots, K, T] uint8: whose row holds a running beam's past
    """

    entry: Tensor
    length: Tensor
    limit: Tensor
    log_prob: Tensor
    final_score: Tensor
    tokens: Tensor
    indirection: Tensor


class Outbox(NamedTuple):
    """The best hypothesis so far of each entry.

    Shapes:
        tokens [entries, T] int32, without language token and `</s>`; length [entries] int32
        score [entries] fp32; finish [entries] int32, a FINISH_… constant
    """

    tokens: Tensor
    length: Tensor
    score: Tensor
    finish: Tensor


class StepIO(NamedTuple):
    """What a beam step reads and writes beside the state, keyed by place in the batch.

    Shapes:
        slot_ids [n] int32
        next_tokens [n*K] int32, written: what the decoder reads next
        positions [n*K] int32, written: its row of the position table, 0 for padding
        finished [n] int32, written: the entry whose search ended in this step, else -1
    """

    slot_ids: Tensor
    next_tokens: Tensor
    positions: Tensor
    finished: Tensor


def num_candidates(beam_size: int) -> int:
    """How many continuations of each beam a step looks at: 2K, so that K go on; greedy one."""
    return 1 if beam_size == 1 else 2 * beam_size


def beam_step_reference(
    state: SearchState,
    outbox: Outbox,
    io: StepIO,
    scores: tuple[Tensor, Tensor, Tensor],
    powers: Tensor,
    rule: tuple[int, int, int],
) -> None:
    """The twin of `beam_step`: one slot after the other."""
    values, ids, lse = scores
    eos_id, pad_id, stopping = rule
    K, C = state.log_prob.shape[1], values.shape[1]
    for place, slot in enumerate(io.slot_ids.tolist()):
        entry = int(state.entry[slot])
        io.finished[place] = -1
        if entry < 0:
            continue
        rows = slice(place * K, (place + 1) * K)
        t, limit = int(state.length[slot]), int(state.limit[slot])
        total = values[rows] - lse[rows, None] + state.log_prob[slot, :, None]
        exists = state.log_prob[slot] > ABSENT / 2
        is_broken = bool((~lse[rows].isfinite() & exists).any())
        order = total.flatten().sort(descending=True, stable=True)[1][: max(C, 2 * K)].tolist()
        best = [(float(total.flatten()[i]), i // C, int(ids[rows].flatten()[i])) for i in order]
        best = best[: 2 * K if C > 1 else 1]
        is_last = t + 1 >= limit
        for log_prob, beam, token in best[:K]:
            if is_broken or log_prob < ABSENT / 2 or not (token == eos_id or is_last):
                continue
            score = torch.tensor(log_prob) / powers[t + 1].cpu()
            if score > state.final_score[slot].max():
                _write_hypothesis(state, outbox, slot, beam, token, eos_id)
                outbox.score[entry] = score
            worst = int(state.final_score[slot].argmin())
            if score > state.final_score[slot, worst]:
                state.final_score[slot, worst] = score
        running = [c for c in best if c[2] != eos_id][:K]
        worst_score = float(state.final_score[slot].min())
        horizon = limit if stopping == STOP_NEVER else t + 1
        is_over = is_broken or is_last or len(running) < K
        if not is_over:
            optimistic = torch.tensor(running[0][0]) / powers[horizon].cpu()
            is_full = stopping == STOP_FIRST and worst_score > float("-inf")
            is_over = is_full or not float(optimistic) > worst_score
        if is_over:
            if is_broken:
                outbox.finish[entry], outbox.length[entry] = FINISH_INVALID, 0
            io.finished[place], state.entry[slot] = entry, -1
            continue
        parents = torch.tensor([beam for _, beam, _ in running])
        state.indirection[slot, :, :t] = state.indirection[slot, parents, :t]
        state.indirection[slot, :, t] = parents.to(torch.uint8)
        state.length[slot] = t + 1
        for k, (log_prob, _, token) in enumerate(running):
            state.log_prob[slot, k] = log_prob
            state.tokens[slot, t + 1, k] = token
            io.next_tokens[place * K + k] = token
            io.positions[place * K + k] = 0 if token == pad_id else t + 2


def _write_hypothesis(
    state: SearchState, outbox: Outbox, slot: int, beam: int, token: int, eos_id: int
) -> None:
    """Write the tokens of a beam, and the last one if it is not `</s>`."""
    entry, t = int(state.entry[slot]), int(state.length[slot])
    path = state.indirection[slot, beam, 2:t].tolist() + [beam]
    found = [int(state.tokens[slot, 2 + i, row]) for i, row in enumerate(path)][: t - 1]
    if token != eos_id:
        found.append(token)
    outbox.tokens[entry, : len(found)] = torch.tensor(found, dtype=torch.int32)
    outbox.length[entry] = len(found)
    outbox.finish[entry] = FINISH_EOS if token == eos_id else FINISH_LENGTH


@triton.jit
def _beam_step_kernel(
    entry_ptr,
    length_ptr,
    limit_ptr,
    log_prob_ptr,
    final_ptr,
    tokens_ptr,
    indirection_ptr,
    out_tokens_ptr,
    out_length_ptr,
    out_score_ptr,
    out_finish_ptr,
    slot_ids_ptr,
    next_tokens_ptr,
    positions_ptr,
    finished_ptr,
    values_ptr,
    ids_ptr,
    lse_ptr,
    powers_ptr,
    eos_id,
    pad_id,
    T,
    K: tl.constexpr,
    C: tl.constexpr,
    KP: tl.constexpr,
    CP: tl.constexpr,
    JP: tl.constexpr,
    STOPPING: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ids_ptr + place).to(tl.int64)
    entry = tl.load(entry_ptr + slot)
    tl.store(finished_ptr + place, -1)
    if entry >= 0:
        t = tl.load(length_ptr + slot)
        limit = tl.load(limit_ptr + slot)
        is_last = t + 1 >= limit
        k = tl.arange(0, KP)
        c = tl.arange(0, CP)
        is_beam = k < K
        log_prob = tl.load(log_prob_ptr + slot * K + k, mask=is_beam, other=float("-inf"))
        lse = tl.load(lse_ptr + place * K + k, mask=is_beam, other=0.0)
        is_odd = (lse != lse) | (tl.abs(lse) == float("inf"))
        is_broken = tl.max(tl.where(is_odd & (log_prob > -5.0e8), 1, 0), 0) > 0
        cell = (place * K + k)[:, None] * C + c[None, :]
        is_cell = is_beam[:, None] & (c < C)[None, :]
        value = tl.load(values_ptr + cell, mask=is_cell, other=float("-inf"))
        token = tl.load(ids_ptr + cell, mask=is_cell, other=0)
        total = tl.reshape(value - lse[:, None] + log_prob[:, None], (KP * CP,))
        token = tl.reshape(token, (KP * CP,))
        index = tl.arange(0, KP * CP)

        # the best 2K, of equal ones the lower (beam, rank) first; greedy looks at the best only
        j = tl.arange(0, JP)
        NUM: tl.constexpr = 1 if C == 1 else 2 * K
        if NUM > 16:
            keys = tl.topk(ordered_key(total, index), JP)
            is_best = j < NUM
            best_total = tl.where(is_best, key_value(keys), float("-inf"))
            best_index = tl.where(is_best, key_index(keys), 0)
            best_beam = best_index // CP
            best_cell = (place * K + best_beam) * C + best_index % CP
            best_token = tl.load(ids_ptr + best_cell, mask=is_best, other=0)
        else:  # so few are quicker one after the other
            best_total = tl.full((JP,), float("-inf"), tl.float32)
            best_beam = tl.zeros((JP,), tl.int32)
            best_token = tl.zeros((JP,), tl.int32)
            for i in range(NUM):
                peak = tl.max(total, 0)
                at = tl.min(tl.where(total == peak, index, KP * CP), 0)
                picked = tl.max(tl.where(index == at, token, 0), 0)
                best_total = tl.where(j == i, peak, best_total)
                best_beam = tl.where(j == i, at // CP, best_beam)
                best_token = tl.where(j == i, picked, best_token)
                total = tl.where(index == at, float("-inf"), total)

        # hypotheses: of the first K those that end
        is_eos = best_token == eos_id
        ends = (is_eos | is_last) & (j < K) & (best_total > -5.0e8)
        power = tl.load(powers_ptr + t + 1)
        score = tl.where(ends, tl.div_rn(best_total, power), float("-inf"))
        score = tl.where(is_broken, float("-inf"), score)
        final = tl.load(final_ptr + slot * K + k, mask=is_beam, other=float("inf"))
        old_best = tl.max(tl.where(is_beam, final, float("-inf")), 0)
        new_best = tl.max(score, 0)
        winner = tl.min(tl.where(score == new_best, j, JP), 0)
        for i in range(K):
            one = tl.max(tl.where(j == i, score, float("-inf")), 0)
            worst = tl.min(final, 0)
            at = tl.min(tl.where(final == worst, k, KP), 0)
            final = tl.where(k == at, tl.maximum(one, worst), final)
        if new_best > old_best:
            beam = tl.max(tl.where(j == winner, best_beam, 0), 0)
            last = tl.max(tl.where(j == winner, best_token, 0), 0)
            out = entry.to(tl.int64) * T
            for start in range(2, t + 1, BLOCK_T):
                p = start + tl.arange(0, BLOCK_T)
                row = tl.load(indirection_ptr + (slot * K + beam) * T + p, mask=p < t, other=0).to(
                    tl.int32
                )
                row = tl.where(p < t, row, beam)
                found = tl.load(tokens_ptr + (slot * T + p) * K + row, mask=p <= t, other=0)
                tl.store(out_tokens_ptr + out + p - 2, found, mask=p <= t)
            is_cut = last != eos_id
            tl.store(out_tokens_ptr + out + t - 1, last, mask=is_cut)
            tl.store(out_length_ptr + entry, tl.where(is_cut, t, t - 1))
            tl.store(out_score_ptr + entry, new_best)
            tl.store(out_finish_ptr + entry, tl.where(is_cut, 1, 0))

        # running beams: the best K that do not end
        goes_on = (best_token != eos_id) & (j < NUM)
        rank = tl.cumsum(tl.where(goes_on, 1, 0), 0) - 1
        chosen = (rank[None, :] == k[:, None]) & goes_on[None, :]  # [KP, JP]
        parent = tl.max(tl.where(chosen, best_beam[None, :], 0), 1)
        new_token = tl.max(tl.where(chosen, best_token[None, :], 0), 1)
        new_log_prob = tl.max(tl.where(chosen, best_total[None, :], float("-inf")), 1)
        num_running = tl.sum(tl.where(goes_on, 1, 0), 0)
        worst = tl.min(final, 0)
        leader = tl.max(tl.where(k == 0, new_log_prob, float("-inf")), 0)
        horizon = limit if STOPPING == 2 else t + 1
        hope = tl.div_rn(leader, tl.load(powers_ptr + horizon))
        is_over = is_broken | is_last | (num_running < K) | (hope <= worst) | (hope != hope)
        if STOPPING == 1:
            is_over = is_over | (worst > float("-inf"))
        if is_over:
            if is_broken:
                tl.store(out_finish_ptr + entry, 2)
                tl.store(out_length_ptr + entry, 0)
            tl.store(finished_ptr + place, entry)
            tl.store(entry_ptr + slot, -1)
        else:
            if K > 1:
                for start in range(1, t, BLOCK_T):
                    p = start + tl.arange(0, BLOCK_T)
                    is_place = is_beam[:, None] & (p < t)[None, :]
                    row = tl.load(
                        indirection_ptr + (slot * K + parent)[:, None] * T + p[None, :],
                        mask=is_place,
                        other=0,
                    )
                    tl.debug_barrier()  # every beam's row is read before one is overwritten
                    tl.store(
                        indirection_ptr + (slot * K + k)[:, None] * T + p[None, :],
                        row,
                        mask=is_place,
                    )
            tl.store(indirection_ptr + (slot * K + k) * T + t, parent.to(tl.uint8), mask=is_beam)
            tl.store(log_prob_ptr + slot * K + k, new_log_prob, mask=is_beam)
            tl.store(final_ptr + slot * K + k, final, mask=is_beam)
            tl.store(tokens_ptr + (slot * T + t + 1) * K + k, new_token, mask=is_beam)
            tl.store(next_tokens_ptr + place * K + k, new_token, mask=is_beam)
            position = tl.where(new_token == pad_id, 0, t + 2)
            tl.store(positions_ptr + place * K + k, position, mask=is_beam)
            tl.store(length_ptr + slot, t + 1)


def beam_step_triton(
    state: SearchState,
    outbox: Outbox,
    io: StepIO,
    scores: tuple[Tensor, Tensor, Tensor],
    powers: Tensor,
    rule: tuple[int, int, int],
    *,
    block_t: int = 64,
    num_warps: int | None = None,
) -> None:
    """The kernel of `beam_step`, one program a place in the batch."""
    values, ids, lse = scores
    eos_id, pad_id, stopping = rule
    n, K, C, T = len(io.slot_ids), state.log_prob.shape[1], values.shape[1], state.tokens.shape[1]
    assert values.shape == ids.shape == (n * K, C)
    assert num_candidates(K) == C
    assert state.indirection.shape == (len(state.entry), K, T)
    assert outbox.tokens.shape[1] == T
    _beam_step_kernel[(n,)](
        *state,
        *outbox,
        *io,
        values,
        ids,
        lse,
        powers,
        eos_id,
        pad_id,
        T,
        K=K,
        C=C,
        KP=triton.next_power_of_2(K),
        CP=triton.next_power_of_2(C),
        JP=triton.next_power_of_2(max(C, 2 * K) if C > 1 else 1),
        STOPPING=stopping,
        BLOCK_T=block_t,
        num_warps=num_warps or (1 if K * C <= 64 else 4),
    )


def beam_step(
    state: SearchState,
    outbox: Outbox,
    io: StepIO,
    scores: tuple[Tensor, Tensor, Tensor],
    powers: Tensor,
    rule: tuple[int, int, int],
) -> None:
    """Take every slot's search one token further, in place.

    The search is that of transformers' `generate`: of a slot's 2K best continuations those among
    the first K that end become hypotheses, the best K that do not end go on; score = log_prob /
    powers[length]. A search ends at its token limit, by its stopping rule, or where a log-sum-exp
    is not finite. A hypothesis is written to the outbox when it is its entry's best so far. Slots
    that are idle stay as they are.

    Shapes:
        scores: values [n*K, C] fp32 logits, ids [n*K, C] int32, lse [n*K] fp32; C = 2K, or 1 if
        K = 1 (greedy); powers [T + 1] fp32: powers[g] = g^length_penalty
        rule: ids of `</s>` and padding, and a STOP_… constant
    """
    run = beam_step_triton if powers.is_cuda else beam_step_reference
    run(state, outbox, io, scores, powers, rule)
