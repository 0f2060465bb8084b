"""Compile the kernels that launchers would launch for a Hopper GPU; print each one's widest load.

A script for `test_compilation.py`: a process of its own, where Triton does not interpret.
"""

import re
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from nllb_cli.kernels import cross_attention, encoder_attention, norm, self_attention

TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.uint8: "*u8"}
K, H, D, E = 4, 16, 64, 1024


def compiled(kernel: Any, arguments: tuple, options: dict[str, Any]) -> Any:
    """Compile `kernel` for what a launch with these arguments would make of it."""
    values = dict(zip(kernel.arg_names, arguments, strict=False)) | options
    constants = {p.name: values[p.name] for p in kernel.params if p.is_constexpr}
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.arg_names):
        value = values[name]
        if name in constants:
            signature[name] = "constexpr"
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            is_tensor = isinstance(value, torch.Tensor)
            signature[name] = TYPES[value.dtype] if is_tensor else "i64"
            if is_tensor or value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    target = GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"num_warps": values["num_warps"]})


class Recorder:
    """Stands in for a kernel: compiles instead of launching."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.launch

    def launch(self, *arguments: Any, **options: Any) -> None:
        ptx = compiled(self.kernel, arguments, options).asm["ptx"]
        widths = map(int, re.findall(r"(?:ld|cp)\.[\w.:]*global[\w.:]*\.v(\d)", ptx))
        print(self.kernel.__name__, max(widths, default=1), flush=True)


def main(dtype: torch.dtype) -> None:
    for module in (norm, self_attention, cross_attention, encoder_attention):
        for name, kernel in list(vars(module).items()):
            if isinstance(kernel, JITFunction) and name.endswith("_kernel"):
                setattr(module, name, Recorder(kernel))
    zeros = torch.zeros(8, dtype=torch.int32)
    cache = torch.zeros(8, 5, K, H, D, dtype=dtype)
    pool = torch.zeros(9, 2, 2, H, D, dtype=dtype)
    x, qkv = torch.zeros(8 * K, E, dtype=dtype), torch.zeros(8 * K, 3 * E, dtype=dtype)
    table, k, v = torch.zeros(8, K, 5, dtype=torch.uint8), pool[:, 1, 0], pool[:, 1, 1]
    norm.add_layer_norm_triton(x, x, x[0], x[0])
    norm.embed_layer_norm_triton(zeros, zeros, x, x, 32.0, x[0], x[0])
    self_attention.self_decode_attention_triton(
        qkv, cache, cache, table, zeros, k, v, zeros, zeros, K
    )
    for use_dot in (False, True):
        arguments = (x, k, v, zeros, zeros, zeros, K)
        cross_attention.cross_decode_attention_triton(*arguments, use_dot=use_dot)
    encoder_attention.encoder_attention_triton(qkv, zeros, 40, H)


if __name__ == "__main__":
    main(getattr(torch, sys.argv[1]))
