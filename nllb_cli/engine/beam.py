"""One step of beam search and the final ranking, pure functions of tensors.

The search is transformers' `generate` with `forced_bos_token_id`, to the letter:

- The forced language token adds 0 to the log-probability and 1 to the length.
- score = log_prob / length^alpha, length = all produced tokens, language token and `</s>` too.
- Of a segment's 2K best continuations those among the first K that end (by `</s>` or by the
  segment's token limit) become hypotheses; the best K that do not end go on.
- A search is over when all K hypotheses exist and no running beam can beat the worst of them by
  the estimate of `early_stopping`, or when nothing goes on.

Stated where transformers leaves it open: of equal candidates the one with the lower (beam, rank
in its beam) comes first, and within a beam the lower token. With one beam (greedy) the search is
over at the first `</s>`. A beam that does not exist (in a vocabulary of fewer than 2K tokens)
never becomes a hypothesis.
"""

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nllb_cli.options import DecodeOptions, EarlyStopping
from nllb_cli.records import Hypothesis

_ABSENT = -1.0e9  # log-probability of beams that do not exist yet
_EXISTS = -5.0e8


@dataclass(frozen=True, slots=True)
class SearchRule:
    """What decides about hypotheses beside their log-probabilities."""

    eos_id: int
    length_penalty: float
    early_stopping: EarlyStopping

    @classmethod
    def of(cls, options: DecodeOptions, eos_id: int) -> "SearchRule":
        """Return the rule of these options; greedy stops at its first hypothesis."""
        stopping = "true" if options.beam_size == 1 else options.early_stopping
        return cls(eos_id, options.length_penalty, stopping)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best next tokens of each beam, best first; NaN where the model's scores are broken.

    Shapes: log_prob [B, K, C] fp32; token [B, K, C] int64; C = 2K, or all tokens if fewer
    """

    log_prob: Tensor
    token: Tensor


@dataclass(frozen=True, slots=True)
class BeamState:
    """The searches of B segments; all tensors have B first.

    Shapes:
        log_prob: [B, K] fp32, sum over the running beam's tokens, best beam first
        tokens: [B, K, T] int64, language token first
        length: [B] int64, tokens of each running beam
        max_length: [B] int64, at most so many
        final_score: [B, K] fp32, score of each hypothesis, best first; -inf where none is
        final_tokens: [B, K, T] int64
        final_length: [B, K] int64
        is_open: [B] bool, the search goes on
        is_invalid: [B] bool, it ended since the model's scores were NaN or infinite
    """

    log_prob: Tensor
    tokens: Tensor
    length: Tensor
    max_length: Tensor
    final_score: Tensor
    final_tokens: Tensor
    final_length: Tensor
    is_open: Tensor
    is_invalid: Tensor

    @property
    def last_tokens(self) -> Tensor:
        """What the decoder reads next. Shapes: [B, K]."""
        B, K, _ = self.tokens.shape
        index = (self.length - 1).view(B, 1, 1).expand(B, K, 1)
        return self.tokens.gather(2, index).squeeze(2)


def initial_state(
    target_ids: Tensor, max_length: Tensor, beam_size: int, num_positions: int
) -> BeamState:
    """Return searches whose one beam holds the language token.

    Shapes: target_ids, max_length [B] int64; T = num_positions
    """
    B, K, device = target_ids.shape[0], beam_size, target_ids.device
    log_prob = torch.full((B, K), _ABSENT, device=device)
    log_prob[:, 0] = 0.0
    tokens = torch.zeros((B, K, num_positions), dtype=torch.int64, device=device)
    tokens[:, :, 0] = target_ids[:, None]
    # Where the limit leaves room for nothing else, the language token is the hypothesis.
    is_open = max_length > 1
    final_score = torch.full((B, K), -math.inf, device=device)
    final_score[:, 0] = final_score[:, 0].masked_fill(~is_open, 0.0)
    return BeamState(
        log_prob=log_prob,
        tokens=tokens,
        length=torch.ones_like(target_ids),
        max_length=max_length,
        final_score=final_score,
        final_tokens=tokens.clone(),
        final_length=torch.ones((B, K), dtype=torch.int64, device=device),
        is_open=is_open,
        is_invalid=torch.zeros_like(is_open),
    )


def beam_step(
    state: BeamState, candidates: Candidates, rule: SearchRule
) -> tuple[BeamState, Tensor]:
    """Return the searches after one more token, and which beam each running beam goes on from.

    Where a search is over its hypotheses stay as they are.
    Shapes: parents [B, K] int64
    """
    B, K, T = state.tokens.shape
    exists = state.log_prob > _EXISTS
    is_broken = ((~candidates.log_prob[:, :, 0].isfinite()) & exists).any(1)
    total = (candidates.log_prob + state.log_prob[:, :, None]).flatten(1)  # [B, K*C]
    total = total.nan_to_num(nan=-math.inf, neginf=-math.inf)
    log_prob, order = _best(total, 2 * K)  # [B, 2K]
    parents = order // candidates.token.shape[2]
    token = candidates.token.flatten(1).gather(1, order)
    tokens = _rows(state.tokens, parents)  # [B, 2K, T]
    place = state.length.clamp(max=T - 1).view(B, 1, 1).expand(B, token.shape[1], 1)
    tokens = tokens.scatter(2, place, token.unsqueeze(2))

    length = state.length + 1
    ends = (token == rule.eos_id) | (length >= state.max_length)[:, None]
    running, chosen = _best(log_prob + ends * _ABSENT, K)
    after = replace(
        state,
        log_prob=running,
        tokens=_rows(tokens, chosen),
        length=torch.where(state.is_open, length, state.length),
        is_invalid=state.is_invalid | (state.is_open & is_broken),
    )
    is_final = ends & (log_prob > _EXISTS) & state.is_open[:, None]
    is_final[:, K:] = False
    score = log_prob / _power(length, rule.length_penalty)[:, None]
    after = _with_hypotheses(after, score.masked_fill(~is_final, -math.inf), tokens)
    is_open = state.is_open & ~is_broken & ~ends.all(1) & _can_improve(after, rule)
    return replace(after, is_open=is_open), parents.gather(1, chosen)


def _with_hypotheses(state: BeamState, score: Tensor, tokens: Tensor) -> BeamState:
    """Return the state with the best K of its hypotheses and new ones (-inf: none)."""
    K, num_new = state.final_score.shape[1], score.shape[1]
    merged, kept = _best(torch.cat((state.final_score, score), 1), K)
    length = torch.cat((state.final_length, state.length[:, None].expand(-1, num_new)), 1)
    return replace(
        state,
        final_score=merged,
        final_tokens=_rows(torch.cat((state.final_tokens, tokens), 1), kept),
        final_length=length.gather(1, kept),
    )


def _can_improve(state: BeamState, rule: SearchRule) -> Tensor:
    """Return whether another hypothesis may still count. Shapes: [B] bool."""
    worst = state.final_score[:, -1]  # -inf until all K exist
    if rule.early_stopping == "true":
        is_full = worst > -math.inf
    else:
        is_full = torch.zeros_like(state.is_open)
    is_optimistic = rule.early_stopping == "never" and rule.length_penalty > 0
    length = state.max_length if is_optimistic else state.length
    best = state.log_prob[:, 0] / _power(length, rule.length_penalty)
    return ~is_full & (best > worst)


def _power(length: Tensor, exponent: float) -> Tensor:
    return length.double().pow(exponent).float()


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best of each row, the lower index first among equals."""
    values, indices = torch.sort(scores, dim=1, descending=True, stable=True)
    return values[:, :count], indices[:, :count]


def _rows(tokens: Tensor, index: Tensor) -> Tensor:
    """Return the token rows of these beams. Shapes: tokens [B, N, T]; index [B, M]."""
    return tokens.gather(1, index.unsqueeze(2).expand(-1, -1, tokens.shape[2]))


def select_segments(state: BeamState, index: Tensor) -> BeamState:
    """Return the searches at these places. Shapes: index [B'] int64."""
    picked = {f.name: getattr(state, f.name).index_select(0, index) for f in fields(state)}
    return BeamState(**picked)


def join_segments(first: BeamState, second: BeamState) -> BeamState:
    """Return the searches of both, which have room for equally many tokens."""
    names = [f.name for f in fields(first)]
    return BeamState(**{n: torch.cat((getattr(first, n), getattr(second, n))) for n in names})


def with_room(state: BeamState, num_positions: int) -> BeamState:
    """Return the searches with room for at least so many tokens a beam."""
    T = state.tokens.shape[2]
    if num_positions <= T:
        return state
    grow = (0, max(num_positions, 2 * T) - T)
    return replace(
        state,
        tokens=torch.nn.functional.pad(state.tokens, grow),
        final_tokens=torch.nn.functional.pad(state.final_tokens, grow),
    )


def best_hypotheses(state: BeamState, eos_id: int) -> list[Hypothesis]:
    """Return each segment's best hypothesis; a broken search has one without tokens."""
    score = state.final_score[:, 0].tolist()
    length = state.final_length[:, 0].tolist()
    tokens = state.final_tokens[:, 0].tolist()
    is_invalid = state.is_invalid.tolist()
    results = []
    for row in range(len(score)):
        produced = tokens[row][: length[row]]
        if is_invalid[row]:
            results.append(Hypothesis([], math.nan, "invalid"))
        elif produced[-1] == eos_id:
            results.append(Hypothesis(produced[1:-1], score[row], "eos"))
        else:
            results.append(Hypothesis(produced[1:], score[row], "length"))
    return results
