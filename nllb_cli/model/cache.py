"""What the decoder remembers: self-attention cache with cache indirection, cross-attention cache.

Both are laid out for a batched product over (segment, head). The beams of a segment lie side by
side, so one product scores all its beams against all their past positions; the cache indirection
says which of those positions belong to which beam. Nothing is ever copied when beams swap, and
cross keys and values exist once a segment.
"""

import torch
from torch import Tensor

from nllb_cli.model.config import ModelConfig

_FIRST_POSITIONS = 16


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

    def set_source(self, cross_kv: Tensor, source_lengths: Tensor) -> None:
        """Start the slots 0 … B-1 on new segments.

        Shapes: cross_kv [L, 2, B, H, S, D]; source_lengths [B]
        """
        B, S = cross_kv.shape[2], cross_kv.shape[4]
        self.reserve(B, 0, S)
        self.cross_kv[:, :, :B, :, :S] = cross_kv
        self.source_lengths[:B] = source_lengths
        self.lengths[:B] = 0

    def insert(self, first: int, prompt: "DecoderCache", num_positions: int) -> None:
        """Take over all segments of a one-beam cache into the slots from `first` on."""
        end = first + prompt.num_slots
        S = prompt.cross_kv.shape[4]
        self.reserve(end, num_positions, S)
        self.cross_kv[:, :, first:end, :, :S] = prompt.cross_kv
        written = prompt.self_kv[:, :, :, :, :num_positions, 0]
        self.self_kv[:, :, first:end, :, :num_positions, 0] = written
        self.beam_rows[first:end] = 0
        self.lengths[first:end] = prompt.lengths
        self.source_lengths[first:end] = prompt.source_lengths

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


def _resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of this shape with what both have room for, and zeros elsewhere."""
    if tensor.shape == shape:
        return tensor
    resized = tensor.new_zeros(shape)
    shared = tuple(slice(min(sizes)) for sizes in zip(tensor.shape, shape, strict=True))
    resized[shared] = tensor[shared]
    return resized
