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
    """Keys and values of up to `num_slots` segments with `beam_size` beams each.

    Slots 0 … n-1 are in use, the caller knows n. Memory that was never written stays zero, since
    a masked position still takes part in the product with weight 0 (and 0 x NaN is NaN).

    Shapes:
        self_kv: [L, 2, B, H, T, K, D], keys then values
        cross_kv: [L, 2, B, H, S, D]
        beam_rows: [B, K, T], cache indirection: whose row holds the key of this beam's position
        lengths: [B], positions written to the self cache
        source_lengths: [B]
    """

    def __init__(self, config: ModelConfig, num_slots: int, beam_size: int, like: Tensor) -> None:
        L, H, D = config.decoder_layers, config.decoder_heads, config.head_size
        self.num_slots = num_slots
        self.beam_size = beam_size
        self.self_kv = like.new_zeros((L, 2, num_slots, H, _FIRST_POSITIONS, beam_size, D))
        self.cross_kv = like.new_zeros((L, 2, num_slots, H, 0, D))
        self.lengths = torch.zeros((num_slots,), dtype=torch.int64, device=like.device)
        self.source_lengths = torch.zeros_like(self.lengths)
        self.beam_rows = self.lengths.new_zeros((num_slots, beam_size, _FIRST_POSITIONS))

    def reserve(self, num_positions: int, source_width: int) -> None:
        """Make room for so many target and source positions, keeping what is there."""
        if num_positions > self.self_kv.shape[4]:
            num_positions = max(num_positions, 2 * self.self_kv.shape[4])
            self.self_kv = _grown(self.self_kv, 4, num_positions)
            self.beam_rows = _grown(self.beam_rows, 2, num_positions)
        if source_width > self.cross_kv.shape[4]:
            self.cross_kv = _grown(self.cross_kv, 4, source_width)

    def set_source(self, cross_kv: Tensor, source_lengths: Tensor) -> None:
        """Start the slots 0 … B-1 on new segments.

        Shapes: cross_kv [L, 2, B, H, S, D]; source_lengths [B]
        """
        B, S = cross_kv.shape[2], cross_kv.shape[4]
        self.reserve(0, S)
        self.cross_kv[:, :, :B, :, :S] = cross_kv
        self.source_lengths[:B] = source_lengths
        self.lengths[:B] = 0

    def insert(self, first: int, prompt: "DecoderCache", num_positions: int) -> None:
        """Take over all segments of a one-beam cache into the slots from `first` on."""
        end = first + prompt.num_slots
        S = prompt.cross_kv.shape[4]
        self.reserve(num_positions, S)
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
        self.self_kv[:, :, target, :, :num_positions] = self.self_kv[
            :, :, source, :, :num_positions
        ]
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


def _grown(tensor: Tensor, dim: int, size: int) -> Tensor:
    shape = list(tensor.shape)
    old = shape[dim]
    shape[dim] = size
    grown = tensor.new_zeros(shape)
    grown.narrow(dim, 0, old).copy_(tensor)
    return grown
