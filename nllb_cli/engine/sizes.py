"""How many slots, how deep and how large a pool: from memory and the model's shape."""

from bisect import bisect_right
from dataclasses import dataclass

from nllb_cli.engine.slots import SlotShape, slot_bytes
from nllb_cli.errors import DeviceError
from nllb_cli.model.config import ModelConfig

TARGET_ROWS = 4096
"""Rows of a decode step where products run near the machine's rate; more gain little."""
TARGET_SLOTS = 2048
"""Segments at once, whatever the beam: with more, the end of a job leaves more of them idle."""
_POOL_TOKENS = 96
"""Source tokens a slot: half of the sentences more wait than run, blocks of the pool are free only
when all of their sentences are done, and slots stay empty where nothing can wait.
"""
_DEPTHS = (128, 256, 520)
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """What decides about the slots of an engine."""

    config: ModelConfig
    beam_size: int
    item_bytes: int
    budget_bytes: int
    """What caches, pool, scratch and activations may take together."""
    max_batch_rows: int | None = None
    """At most so many segments at once (None: as memory allows)."""

    def shape(self, max_target_tokens: int) -> SlotShape:
        """Return the largest shape within the budget whose targets may have so many tokens.

        Raises:
            DeviceError: not even one slot fits
        """
        most = max(min(TARGET_ROWS // self.beam_size, TARGET_SLOTS), 1)
        if most > 16:  # rows in sixteens: the kernels of all rungs are then the same
            most -= most % 16
        if self.max_batch_rows is not None:
            most = min(most, self.max_batch_rows)
        shapes = [self._shape(num_slots, max_target_tokens) for num_slots in _slot_counts(most)]
        num_fitting = bisect_right(shapes, self.budget_bytes, key=self.needed_bytes)
        if num_fitting:
            return shapes[num_fitting - 1]
        raise DeviceError(
            f"the model's caches need {in_gib(self.needed_bytes(shapes[0]))} beside the weights, "
            f"{in_gib(self.budget_bytes)} are available: "
            "lower --beam or --max-target-tokens, raise --gpu-memory or use --device cpu"
        )

    def smallest(self, max_target_tokens: int) -> SlotShape:
        """Return the shape with one slot, whether it fits or not."""
        return self._shape(1, max_target_tokens)

    def needed_bytes(self, shape: SlotShape) -> int:
        """Bytes that slots of this shape take, with what encoding and a step need in passing."""
        in_passing = shape.num_slots * shape.beam_size + encode_tokens(shape.num_slots)
        per_token = 8 * self.config.d_model + max(self.config.encoder_ffn, self.config.decoder_ffn)
        return (
            slot_bytes(self.config, shape, self.item_bytes)
            + in_passing * per_token * self.item_bytes
        )

    def _shape(self, num_slots: int, max_target_tokens: int) -> SlotShape:
        wanted = max_target_tokens + 1
        depth = next((d for d in _DEPTHS if d >= wanted), -(-wanted // 64) * 64)
        return SlotShape(
            num_slots=num_slots,
            beam_size=self.beam_size,
            num_positions=depth,
            pool_rows=_POOL_TOKENS * num_slots + 3 * encode_tokens(num_slots),
            num_entries=3 * num_slots + 1024,
        )


def weight_bytes(config: ModelConfig, item_bytes: int) -> int:
    """Bytes that a checkpoint's weights take on the device, embeddings tied as the config says."""
    E, L = config.d_model, config.decoder_layers
    attention = 4 * E * E + 4 * E
    encoder_layer = attention + _feed_forward_size(E, config.encoder_ffn) + 4 * E
    decoder_layer = 2 * attention + _feed_forward_size(E, config.decoder_ffn) + 6 * E
    num_embeddings = 1 if config.is_tied else 2
    return item_bytes * (
        num_embeddings * config.padded_vocab_size * E
        + config.encoder_layers * encoder_layer
        + L * decoder_layer
        + 4 * E
        + (config.max_positions + 1) * E
    )


def _feed_forward_size(E: int, F: int) -> int:
    return 2 * E * F + E + F


def encode_tokens(num_slots: int) -> int:
    """Source tokens that are encoded together: about as many sentences as there are slots.

    The host takes as long to launch many as to launch few, and the device must not wait for it.
    """
    return min(32768, max(2048, 32 * num_slots))


def in_gib(num_bytes: int) -> str:
    """An amount of memory as a person reads it."""
    return f"{max(num_bytes, 0) / _GIB:.1f} GiB"


def _slot_counts(most: int) -> list[int]:
    """Return the numbers of slots worth a choice: few, or multiples of 8; and the whole."""
    return [n for n in range(1, most + 1) if n <= 16 or n % 8 == 0 or n == most]
