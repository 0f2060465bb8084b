"""Fresh memory is NaN here, so that nothing read before it was written goes unseen."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """Fill what `torch.empty` and its like return with NaN (floats) or the largest integer."""

    def poisoned(allocate):
        def allocate_and_fill(*args, **kwargs):
            tensor = allocate(*args, **kwargs)
            if tensor.is_floating_point():
                return tensor.fill_(float("nan"))
            return tensor.fill_(torch.iinfo(tensor.dtype).max)

        return allocate_and_fill

    for name in ("empty", "empty_like", "empty_strided"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(new_empty))
