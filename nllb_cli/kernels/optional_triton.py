"""Triton where it is installed; elsewhere stand-ins that let a kernel file be imported.

PyTorch for CPUs comes without Triton. There only the plain twins run, but the files that hold
both must still load: `triton.jit` leaves its function alone and `tl` answers with placeholders.
"""

from typing import Any

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:

    class _Absent:
        """Stands for any attribute of Triton; as a decorator it gives its function back."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> "_Absent":
            return _Absent(f"{self._name}.{name}")

        def __call__(self, function: Any) -> Any:
            return function

    triton = _Absent("triton")
    tl = _Absent("triton.language")
    TensorDescriptor = _Absent("TensorDescriptor")

__all__ = ["TensorDescriptor", "tl", "triton"]
