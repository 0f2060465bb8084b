"""Fresh memory is NaN, and every kernel runs where it can: interpreted on a CPU, or on a GPU."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel's file is imported


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    pytest.importorskip("triton")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if request.param == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels run on a CPU under TRITON_INTERPRET=1 only")
    return request.param


@pytest.fixture(autouse=True)
def _loop_bounds_from_memory(monkeypatch):
    """Let the interpreter count to a number that was loaded, which numpy 2.4 began to refuse."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor_and_index)


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """Fill what `torch.empty` and its like return with NaN (floats) or the largest integer."""

    def poisoned(allocate):
        def allocate_and_fill(*args, **kwargs):
            tensor = allocate(*args, **kwargs)
            is_float = tensor.is_floating_point()
            return tensor.fill_(float("nan") if is_float else torch.iinfo(tensor.dtype).max)

        return allocate_and_fill

    for name in ("empty", "empty_like", "empty_strided"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
