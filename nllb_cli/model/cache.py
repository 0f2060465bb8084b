"""What the decoder remembers: self-attention cache with cache indirection, cross-attention cache.

Both are laid out for a batched product over (segment, head). The beams of a segment lie side by
side, so one product scores all its beams against all their past positions; the cache indirection
says which of those positions belong to which beam. Nothing is ever copied when beams swap, and
cross keys and values exist once a segment.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nllb_cli.model.config import ModelConfig

_FIRST_POSITIONS = 16


@dataclass(frozen=True, slots=True)
class Step:
    """Q new tokens in each of the slots first … first + B - 1: what they read and write.

    Shapes:
        tokens: [B, Q] int64
        positions: [B or 1, Q or 1], from 0
        times, rows: [B or 1, Q or 1], where in its slot each new key goes
        self_mask: [B or 1, 1, Q, T*K] fp32, 0 where a token may look and -inf elsewhere
        cross_mask: [B, 1, 1, S] fp32
    """

    tokens: Tensor
    first: int
    positions: Tensor
    times: Tensor
    rows: Tensor
    self_mask: Tensor
    cross_mask: Tensor


class DecoderCache:
    """Keys and values of the segments being decoded, `beam_size` beams each.

    Slots 0 … n-1 are in use, the caller knows n. Room grows on demand. Memory that was never
    written stays zero, since a masked position still takes part in the product with weight 0 (and
    0 x NaN is NaN).

    Shapes:
        self_kv: [L, 2, B, H, T, K, D], keys then values
        cross_kv: [L, 2, B, H, S, D]
        beam_rows: [B, K, T], cache indirection: whose row holds the key of this beam's position
        lengths: [B], positions written to the self cache
        source_lengths: [B]
    """

    def __init__(self, config: ModelConfig, beam_size: int, like: Tensor) -> None:
        L, H, D = config.decoder_layers, config.decoder_heads, config.head_size
        self.beam_size = beam_size
        self.self_kv = like.new_zeros((L, 2, 0, H, 0, beam_size, D))
        self.cross_kv = like.new_zeros((L, 2, 0, H, 0, D))
        self.lengths = torch.zeros((0,), dtype=torch.int64, device=like.device)
        self.source_lengths = torch.zeros_like(self.lengths)
        self.beam_rows = self.lengths.new_zeros((0, beam_size, 0))

    @property
    def num_slots(self) -> int:
        """B, what there is room for."""
        return self.lengths.shape[0]

    def reserve(self, num_slots: int, num_positions: int, source_width: int) -> None:
        """Make room for so many slots, target and source positions, keeping what is there.

        Slots from `num_slots` on may be given up for wider ones.
        """
        L, _, B, H, T, K, D = self.self_kv.shape
        S = self.cross_kv.shape[4]
        is_wide_enough = num_positions <= T and source_width <= S
        if is_wide_enough and num_slots <= B:
            return
        B = max(num_slots, B) if is_wide_enough else num_slots
        if num_positions > T:
            T = max(num_positions, T + T // 2, _FIRST_POSITIONS)
        S = max(source_width, S)
        self.self_kv = _resized(self.self_kv, (L, 2, B, H, T, K, D))
        self.cross_kv = _resized(self.cross_kv, (L, 2, B, H, S, D))
        self.beam_rows = _resized(self.beam_rows, (B, K, T))
        self.lengths = _resized(self.lengths, (B,))
        self.source_lengths = _resized(self.source_lengths, (B,))

    def set_source(self, cross_kv: Tensor, source_lengths: Tensor, first: int = 0) -> None:
        """Start the slots from `first` on with new segments.

        Shapes: cross_kv [L, 2, B, H, S, D]; source_lengths [B]
        """
        end, S = first + cross_kv.shape[2], cross_kv.shape[4]
        self.reserve(end, 0, S)
        self.cross_kv[:, :, first:end, :, :S] = cross_kv
        self.source_lengths[first:end] = source_lengths
        self.lengths[first:end] = 0
        self.beam_rows[first:end] = 0

    def prompt_step(self, first: int, tokens: Tensor) -> Step:
        """Return the step of the first tokens of the slots from `first` on: one beam each.

        All beams of a slot go on from row 0. Shapes: tokens [B, Q]
        """
        B, Q = tokens.shape
        self.reserve(first + B, Q, 0)
        self.lengths[first : first + B] = Q
        place = torch.arange(Q, device=tokens.device)[None]  # [1, Q]
        is_seen = tokens.new_zeros((1, 1, Q, Q, self.beam_size), dtype=torch.bool)
        is_seen[0, 0, :, :, 0] = torch.ones_like(is_seen[0, 0, :, :, 0]).tril()
        return Step(
            tokens=tokens,
            first=first,
            positions=place,
            times=place,
            rows=torch.zeros_like(place),
            self_mask=_mask(is_seen.flatten(3)),
            cross_mask=self._cross_mask(first, first + B),
        )

    def beam_step(self, tokens: Tensor, num_positions: int) -> Step:
        """Return the step of the next token of all beams of the first B slots.

        `num_positions` is what the longest of them has in the cache after it.
        Shapes: tokens [B, K]
        """
        B, K = tokens.shape
        self.reserve(B, num_positions, 0)
        lengths = self.lengths[:B, None].clone()  # [B, 1]
        beams = torch.arange(K, device=tokens.device)
        # Each new key belongs to the beam in whose row it lies.
        self.beam_rows[:B].scatter_(
            2, lengths[:, :, None].expand(B, K, 1), beams.view(1, K, 1).expand(B, K, 1)
        )
        self.lengths[:B] += 1
        is_own = self.beam_rows[:B, :, :num_positions, None] == beams  # [B, K, T, K]
        is_past = torch.arange(num_positions, device=tokens.device) <= lengths  # [B, T]
        is_seen = is_own & is_past[:, None, :, None]
        return Step(
            tokens=tokens,
            first=0,
            positions=lengths,
            times=lengths,
            rows=beams[None],
            self_mask=_mask(is_seen.flatten(2)[:, None]),
            cross_mask=self._cross_mask(0, B),
        )

    def _cross_mask(self, first: int, end: int) -> Tensor:
        lengths = self.source_lengths[first:end, None]
        position = torch.arange(int(lengths.max()), device=lengths.device)
        return _mask((position < lengths)[:, None, None])

    def move(self, sources: list[int], targets: list[int], num_positions: int) -> None:
        """Copy whole slots, of whose self cache `num_positions` are in use at most."""
        device = self.lengths.device
        source = torch.tensor(sources, device=device)
        target = torch.tensor(targets, device=device)
        past = self.self_kv[:, :, :, :, :num_positions]
        past[:, :, target] = past[:, :, source]
        self.cross_kv[:, :, target] = self.cross_kv[:, :, source]
        for tensor in (self.beam_rows, self.lengths, self.source_lengths):
            tensor[target] = tensor[source]

    def scrub(self, slots: list[int]) -> None:
        """Zero slots that may hold NaN or infinity, which a later segment would catch."""
        self.self_kv[:, :, slots] = 0
        self.cross_kv[:, :, slots] = 0

    def advance(self, parents: Tensor) -> None:
        """Let the beams of the first B slots go on from the rows that they were chosen from.

        Shapes: parents [B, K]
        """
        B = parents.shape[0]
        rows = self.beam_rows[:B]
        index = parents.unsqueeze(-1).expand(rows.shape)
        self.beam_rows[:B] = rows.gather(1, index)


def _mask(is_seen: Tensor) -> Tensor:
    """Return what is added to attention scores: 0 where a token may look and -inf elsewhere."""
    return torch.zeros(is_seen.shape, device=is_seen.device).masked_fill_(~is_seen, -math.inf)


def _resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of this shape with what both have room for, and zeros elsewhere."""
    if tensor.shape == shape:
        return tensor
    resized = tensor.new_zeros(shape)
    shared = tuple(slice(min(sizes)) for sizes in zip(tensor.shape, shape, strict=True))
    resized[shared] = tensor[shared]
    return resized
