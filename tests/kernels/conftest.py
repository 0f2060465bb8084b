"""Fresh memory is NaN, and every kernel runs where it can: interpreted on a CPU, or on a GPU."""

import importlib.util
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel's file is imported


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    pytest.importorskip("triton")
    if request.param == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels run on a CPU under TRITON_INTERPRET=1 only")
    return request.param


@pytest.fixture(autouse=True)
def _interpreter_as_a_gpu(monkeypatch):
    """Mend Triton 3.6's interpreter where it differs from what a GPU does."""
    if importlib.util.find_spec("triton") is None:
        return  # only twins run there
    interpreter = importlib.import_module("triton.runtime.interpreter")
    tl = importlib.import_module("triton.language")
    patch_tensor = interpreter._patch_lang_tensor
    convert_float = interpreter._convert_float
    create_dot = interpreter.InterpreterBuilder.create_dot

    def patch_tensor_and_index(tensor, scope):
        """Numpy 2.4 no longer makes a loop bound of an array of one number."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def convert_and_round(data, source, target, rounding_mode):
        """To bf16 it cuts instead of rounding."""
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert_float(data, source, target, rounding_mode)
        return torch.tensor(data).to(torch.bfloat16).view(torch.uint16).numpy()

    def dot_of_values(self, a, b, *rest):
        """In bf16 it multiplies the bit patterns, taken as integers."""
        if a.dtype == tl.bfloat16:
            a, b = (self.cast_impl(handle, tl.float32) for handle in (a, b))
        return create_dot(self, a, b, *rest)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor_and_index)
    monkeypatch.setattr(interpreter, "_convert_float", convert_and_round)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot_of_values)


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
