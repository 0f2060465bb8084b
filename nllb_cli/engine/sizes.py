"""How many slots, how deep and how large a pool: from memory and the model's shape."""

from dataclasses import dataclass

from nllb_cli.engine.slots import SlotShape, slot_bytes
from nllb_cli.errors import DeviceError
from nllb_cli.model.config import ModelConfig

TARGET_ROWS = 4096
"""Rows of a decode step where products run near the machine's rate; more gain little."""
_DEPTHS = (128, 256, 520)
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """What decides about the slots of an engine."""

    config: ModelConfig
    beam_size: int
    item_bytes: int
    budget_bytes: int
    """What caches, pool and scratch may take together."""
    max_batch_rows: int | None = None
    """At most so many segments at once (None: as memory allows)."""

    def shape(self, max_target_tokens: int) -> SlotShape:
        """Return the largest shape within the budget whose targets may have so many tokens.

        Raises:
            DeviceError: not even one slot fits
        """
        wanted = max_target_tokens + 1
        depth = next((d for d in _DEPTHS if d >= wanted), -(-wanted // 64) * 64)
        num_slots = max(TARGET_ROWS // self.beam_size, 1)
        if self.max_batch_rows is not None:
            num_slots = min(num_slots, self.max_batch_rows)
        while True:
            shape = self._shape(num_slots, depth)
            needed = slot_bytes(self.config, shape, self.item_bytes)
            if needed <= self.budget_bytes:
                return shape
            if num_slots == 1:
                raise DeviceError(
                    f"the model's caches need {needed / _GIB:.1f} GiB beside the weights, "
                    f"{max(self.budget_bytes, 0) / _GIB:.1f} GiB are available: "
                    "lower --beam or --max-target-tokens, raise --gpu-memory or use --device cpu"
                )
            num_slots = _smaller(num_slots)

    def _shape(self, num_slots: int, depth: int) -> SlotShape:
        return SlotShape(
            num_slots=num_slots,
            beam_size=self.beam_size,
            num_positions=depth,
            pool_rows=48 * num_slots + 3 * encode_tokens(num_slots),
            num_entries=3 * num_slots + 1024,
        )


def encode_tokens(num_slots: int) -> int:
    """Source tokens that are encoded together: enough for half of the slots, as a rule."""
    return min(16384, max(2048, 16 * num_slots))


def _smaller(num_slots: int) -> int:
    """Return about three quarters, a multiple of 8 where it is large."""
    smaller = max(num_slots * 3 // 4, 1)
    return smaller // 8 * 8 if smaller > 16 else smaller
