"""What comes back from the device without stopping it: counters some steps late, then results."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nllb_cli.engine.slots import Slots
from nllb_cli.kernels.search import FINISH_EOS, FINISH_LENGTH
from nllb_cli.records import Finish, Hypothesis

_FINISH: dict[int, Finish] = {FINISH_EOS: "eos", FINISH_LENGTH: "length"}


@dataclass(slots=True, eq=False)
class Arrival:
    """Host copies that are valid once `wait` returns."""

    tensors: list[Tensor]
    event: torch.cuda.Event | None

    def wait(self) -> list[Tensor]:
        """Return the copies; waits for the device if they are still on their way."""
        if self.event is not None:
            self.event.synchronize()
        return self.tensors


def send_to_host(tensors: list[Tensor]) -> Arrival:
    """Start copies to pinned memory, in the order of the device's work."""
    if not tensors[0].is_cuda:
        return Arrival([tensor.clone() for tensor in tensors], None)
    copies = [
        torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(
            tensor, non_blocking=True
        )
        for tensor in tensors
    ]
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return Arrival(copies, event)


def fetch(slots: Slots, first: int, last: int) -> Arrival:
    """Start copying the results of those that were the first-th … last-th to be done."""
    Q = slots.shape.num_entries
    index = torch.arange(first, last, device=slots.queue.done.device) % Q
    entries = slots.queue.done[index]
    return send_to_host([entries, *(part[entries.long()] for part in slots.outbox)])


def hypotheses(arrival: Arrival) -> list[tuple[int, Hypothesis]]:
    """Return (entry, its best hypothesis); an invalid one has no tokens."""
    entries, tokens, length, score, finish = arrival.wait()
    results = []
    for entry, row, size, value, code in zip(
        entries.tolist(),
        tokens.numpy(),
        length.tolist(),
        score.tolist(),
        finish.tolist(),
        strict=True,
    ):
        if code in _FINISH:
            results.append((entry, Hypothesis(row[:size].tolist(), value, _FINISH[code])))
        else:
            results.append((entry, Hypothesis([], float("nan"), "invalid")))
    return results
