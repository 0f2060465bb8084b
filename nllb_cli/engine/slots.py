"""The device memory of a slot engine: caches, search state, queue, outbox; their sizes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nllb_cli.kernels.admission import Queue, SlotSource, admit
from nllb_cli.kernels.lm_head import num_tiles
from nllb_cli.kernels.search import ABSENT, Outbox, SearchState, StepIO
from nllb_cli.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class SlotShape:
    """How large everything is."""

    num_slots: int
    beam_size: int  # K
    num_positions: int  # T, of the self cache; a target has fewer tokens
    pool_rows: int  # P, of the cross-attention pool; one a source token, one a sentence
    num_entries: int  # waiting, running and not yet fetched

    @property
    def max_target_tokens(self) -> int:
        """The largest token limit that fits."""
        return self.num_positions - 1


def slot_bytes(config: ModelConfig, shape: SlotShape, item_bytes: int) -> int:
    """Bytes that the caches, the pool and the logits' scratch of this shape take."""
    rows = shape.num_slots * shape.beam_size
    kv_bytes = 2 * config.decoder_layers * config.d_model * item_bytes
    scratch = rows * config.padded_vocab_size * (4 if item_bytes == 4 else 2)
    state = shape.num_entries * shape.num_positions * 4 + rows * shape.num_positions * 5
    return rows * shape.num_positions * kv_bytes + shape.pool_rows * kv_bytes + scratch + state


class Slots:
    """All tensors of the decode loop, allocated once."""

    def __init__(self, config: ModelConfig, shape: SlotShape, like: Tensor) -> None:
        self.shape = shape
        n, K, T, Q = shape.num_slots, shape.beam_size, shape.num_positions, shape.num_entries
        L, H, D = config.decoder_layers, config.decoder_heads, config.head_size
        V_padded, device = config.padded_vocab_size, like.device

        def whole(*size: int, fill: int = 0) -> Tensor:
            return torch.full(size, fill, dtype=torch.int32, device=device)

        def real(*size: int, fill: float = 0.0) -> Tensor:
            return torch.full(size, fill, dtype=torch.float32, device=device)

        self.k_cache = [like.new_empty(n, T, K, H, D) for _ in range(L)]
        self.v_cache = [like.new_empty(n, T, K, H, D) for _ in range(L)]
        self.pool = like.new_empty(shape.pool_rows, L, 2, H, D)
        self.pool[:2] = 0  # what idle slots read
        scratch_dtype = torch.float32 if like.dtype == torch.float32 else torch.float16
        self.relative = torch.empty(n * K, V_padded, dtype=scratch_dtype, device=device)
        self.tile_max = real(n * K, num_tiles(V_padded))
        self.tile_sum = real(n * K, num_tiles(V_padded))
        indirection = torch.zeros(n, K, T, dtype=torch.uint8, device=device)
        self.state = SearchState(
            entry=whole(n, fill=-1),
            length=whole(n, fill=1),
            limit=whole(n),
            log_prob=real(n, K, fill=ABSENT),
            final_score=real(n, K, fill=float("-inf")),
            tokens=whole(n, T, K),
            indirection=indirection,
        )
        self.source = SlotSource(whole(n, fill=1), whole(n, fill=1), whole(n))
        self.outbox = Outbox(whole(Q, T), whole(Q), real(Q), whole(Q))
        self.queue = Queue(whole(4), *(whole(Q) for _ in range(7)))
        self._slot_ids = torch.arange(n, dtype=torch.int32, device=device)
        self._next_tokens, self._positions = whole(n * K), whole(n * K, fill=2)
        self._finished = whole(n, fill=-1)

    def io(self, n: int) -> StepIO:
        """Views of the first `n` places of the batch."""
        rows = n * self.shape.beam_size
        return StepIO(
            self._slot_ids[:n], self._next_tokens[:rows], self._positions[:rows], self._finished[:n]
        )

    def keys(self, layer: int) -> Tensor:
        """Cross-attention keys of a layer; at prefix rows its start tokens'. Shapes: [P, H, D]."""
        return self.pool[:, layer, 0]

    def values(self, layer: int) -> Tensor:
        """Values as `keys`. Shapes: [P, H, D]."""
        return self.pool[:, layer, 1]

    def enqueue(self, entries: list[int], rows: Tensor, tail: int) -> None:
        """Let entries wait.

        Shapes: rows [5, B] int32 on the host: start, length, prefix, language, limit of each;
        `tail` is how many entries ever waited before these
        """
        Q, device = self.shape.num_entries, self.queue.counters.device
        ids = torch.tensor(entries, dtype=torch.int32)
        places = (torch.arange(tail, tail + len(entries)) % Q).to(torch.int32)
        packed = torch.cat((torch.stack((ids, places)), rows))
        if device.type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
        index = packed[0].long()
        self.queue.waiting[packed[1].long()] = packed[0]
        for target, row in zip(self.queue[3:], packed[2:], strict=True):
            target[index] = row
        self.queue.counters[1:2] += len(entries)

    def fill(self, n: int) -> None:
        """Give free slots of the first `n` places waiting entries, outside of a decode step."""
        self._finished[:n] = -1
        admit(self.state, self.source, self.queue, self.io(n))

    def compact(self) -> None:
        """Move the places whose slots work to the front, in order; no cache is copied."""
        is_idle = self.state.entry[self._slot_ids.long()] < 0
        order = torch.argsort(is_idle.to(torch.int32), stable=True)
        K = self.shape.beam_size
        self._slot_ids.copy_(self._slot_ids[order])
        self._next_tokens.copy_(self._next_tokens.view(-1, K)[order].flatten())
        self._positions.copy_(self._positions.view(-1, K)[order].flatten())
