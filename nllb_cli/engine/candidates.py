"""The best next tokens of each row and their log-probabilities, without sorting the vocabulary."""

import math

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
"""Tokens whose largest logit is looked at first; the padded vocabulary is a multiple of it."""


def top_candidates(
    hidden: Tensor, lm_head: Tensor, sizes: tuple[int, int], count: int
) -> tuple[Tensor, Tensor]:
    """Return the `count` best tokens of each row with their log-probabilities, best first.

    `sizes` are the model's vocabulary, over which probabilities sum to 1, and the number of tokens
    that may be chosen (the rest are ids without a text). Of equal logits the lower token is first.
    A row whose logits are not all sound gets NaN.
    Shapes: hidden [R, E]; lm_head [V_padded, E]; returns [R, C] fp32, [R, C] int64
    """
    vocab_size, num_tokens = sizes
    logits = functional.linear(hidden, lm_head).float()
    lse = torch.logsumexp(logits[:, :vocab_size], dim=1)
    logits[:, num_tokens:] = -math.inf
    values, tokens = top_tokens(logits, min(count, num_tokens))
    log_prob = values - lse[:, None]
    return log_prob.masked_fill_(~lse.isfinite()[:, None], math.nan), tokens


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row in order, the lower index first among equals.

    The largest lie in the `count` blocks with the largest maxima, so only these are searched.
    Shapes: logits [R, V], V a multiple of BLOCK; returns [R, count] twice
    """
    R = logits.shape[0]
    blocks = logits.view(R, -1, BLOCK)
    chosen = _largest(blocks.amax(2), min(count, blocks.shape[1]))[1].sort(dim=1)[0]
    index = chosen[:, :, None].expand(-1, -1, BLOCK)
    found = blocks.gather(1, index).flatten(1)
    values, place = _largest(found, count)
    return values, chosen.gather(1, place // BLOCK) * BLOCK + place % BLOCK


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row in order, the lower index first among equals."""
    best, index = torch.topk(values, min(count + 1, values.shape[1]), dim=1)
    # topk leaves the order of equals open: only where some exist is a stable sort needed.
    if bool((best[:, 1:] == best[:, :-1]).any()):
        best, index = torch.sort(values, dim=1, descending=True, stable=True)
    return best[:, :count], index[:, :count]
