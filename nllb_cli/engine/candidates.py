"""The best next tokens of each row and their log-probabilities, without sorting the vocabulary."""

import math

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 128
"""Tokens whose largest logit is looked at first; the padded vocabulary is a multiple of it."""
_CHUNK = 2048
"""Logits of so many tokens are reduced while they are still in a core's cache."""
_SMALLEST_SUM, _LARGEST_SUM = 1e-25, 1e30


class CandidateFinder:
    """Finds the best next tokens of rows, in work space that is kept for the next step."""

    def __init__(self, lm_head: Tensor, vocab_size: int, num_tokens: int) -> None:
        """Probabilities sum to 1 over `vocab_size`; only ids below `num_tokens` are chosen.

        Shapes: lm_head [V_padded, E]
        """
        self._lm_head = lm_head
        self._vocab_size = vocab_size
        self._num_tokens = num_tokens
        self._space = torch.empty((0,), device=lm_head.device)

    def find(self, hidden: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the `count` best tokens of each row with their log-probabilities, best first.

        Of equal logits the lower token is first. A row whose logits are not all sound gets NaN.
        Shapes: hidden [R, E]; returns [R, C] fp32, [R, C] int64; C is less in a small vocabulary
        """
        R, V = hidden.shape[0], self._lm_head.shape[0]
        logits, powers, maxima = self._views(R)
        total = torch.zeros((R,), device=hidden.device)
        for start in range(0, V, _CHUNK):
            part = logits[:, start : start + _CHUNK]
            _product(hidden, self._lm_head[start : start + _CHUNK], part)
            counted = part[:, : max(self._vocab_size - start, 0)]
            total += torch.exp(counted, out=powers[:, : counted.shape[1]]).sum(1)
            part[:, max(self._num_tokens - start, 0) :] = -math.inf
            maxima[:, start // BLOCK : (start + _CHUNK) // BLOCK] = _block_maxima(part)
        values, tokens = _top_tokens(logits, maxima, min(count, self._num_tokens))
        log_sum = _log_sum(total, hidden, self._lm_head[: self._vocab_size])
        return values - log_sum[:, None], tokens

    def _views(self, R: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return room for logits [R, V], a chunk of their powers and their blocks' maxima."""
        V = self._lm_head.shape[0]
        sizes = [R * V, R * min(_CHUNK, V), R * V // BLOCK]
        if sum(sizes) > self._space.shape[0]:
            self._space = self._space.new_empty((sum(sizes),))
        logits, powers, maxima = torch.split(self._space[: sum(sizes)], sizes)
        return logits.view(R, V), powers.view(R, -1), maxima.view(R, -1)


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row in order, the lower index first among equals.

    Shapes: logits [R, V], V a multiple of BLOCK; returns [R, count] twice
    """
    return _top_tokens(logits, _block_maxima(logits), count)


def _block_maxima(logits: Tensor) -> Tensor:
    return logits.view(logits.shape[0], -1, BLOCK).amax(2)


def _product(hidden: Tensor, weight: Tensor, out: Tensor) -> None:
    if hidden.dtype == out.dtype:
        torch.mm(hidden, weight.t(), out=out)
    else:
        out.copy_(functional.linear(hidden, weight))


def _log_sum(total: Tensor, hidden: Tensor, lm_head: Tensor) -> Tensor:
    """Return the log of the sums of exponentials; NaN for rows that are broken.

    The sums were taken without subtracting the largest logit, which saves two passes and is exact
    while they are far from what fp32 can hold. Other rows are done again.
    """
    log_sum = total.log()
    is_far = (total > _SMALLEST_SUM) & (total < _LARGEST_SUM)
    if not bool(is_far.all()):
        rows = (~is_far).nonzero().squeeze(1)
        again = functional.linear(hidden[rows], lm_head).float().logsumexp(1)
        log_sum[rows] = again.masked_fill_(~again.isfinite(), math.nan)
    return log_sum


def _top_tokens(logits: Tensor, maxima: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest lie in the `count` blocks with the largest maxima: search only these."""
    R, num_blocks = maxima.shape
    chosen = _largest(maxima, min(count, num_blocks))[1].sort(dim=1)[0]
    first = torch.arange(0, R * num_blocks, num_blocks, device=chosen.device)
    blocks = logits.view(R * num_blocks, BLOCK)
    found = blocks.index_select(0, (chosen + first[:, None]).flatten()).view(R, -1)
    values, place = _largest(found, count)
    return values, chosen.gather(1, place // BLOCK) * BLOCK + place % BLOCK


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row in order, the lower index first among equals."""
    best, index = torch.topk(values, min(count + 1, values.shape[1]), dim=1)
    # topk leaves the order of equals open: only where some exist is a stable sort needed.
    if bool((best[:, 1:] == best[:, :-1]).any()):
        best, index = torch.sort(values, dim=1, descending=True, stable=True)
    return best[:, :count], index[:, :count]
