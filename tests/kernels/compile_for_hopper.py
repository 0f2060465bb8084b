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
from triton.tools.tensor_descriptor import TensorDescriptor

from nllb_cli.kernels import (
    admission,
    cross_attention,
    encoder_attention,
    lm_head,
    norm,
    quantize,
    rescore,
    search,
    self_attention,
    topk,
)

TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
}
MODULES = (
    norm,
    self_attention,
    cross_attention,
    encoder_attention,
    quantize,
    lm_head,
    topk,
    rescore,
    search,
    admission,
)
K, H, D, E = 4, 16, 64, 1024


def _integer(value: int) -> str:
    """The type that a launch gives to an integer."""
    return "i32" if value < 2**31 else "i64"


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
        elif isinstance(value, TensorDescriptor):
            block = ",".join(map(str, value.block_shape))
            signature[name] = f"tensordesc<{TYPES[value.base.dtype]}[{block}]>"
        else:
            is_tensor = isinstance(value, torch.Tensor)
            signature[name] = f"*{TYPES[value.dtype]}" if is_tensor else _integer(value)
            if is_tensor or value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    target = GPUTarget("cuda", 90, 32)
    wanted = {n: values[n] for n in ("num_warps", "num_stages") if values.get(n) is not None}
    return triton.compile(source, target=target, options=wanted)


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
    for module in MODULES:
        for name, kernel in list(vars(module).items()):
            if isinstance(kernel, JITFunction) and name.endswith("_kernel"):
                setattr(module, name, Recorder(kernel))
    compile_layers(dtype)
    for R in (8 * K, 256):
        compile_vocabulary(dtype, R, E)
    compile_vocabulary(dtype, 256, 64)
    for beam_size in (1, K, 32):
        compile_search(beam_size)


def compile_layers(dtype: torch.dtype) -> None:
    zeros = torch.zeros(8, dtype=torch.int32)
    cache = torch.zeros(8, 5, K, H, D, dtype=dtype)
    pool = torch.zeros(9, 2, 2, H, D, dtype=dtype)
    x, qkv = torch.zeros(8 * K, E, dtype=dtype), torch.zeros(8 * K, 3 * E, dtype=dtype)
    table, k, v = torch.zeros(8, K, 5, dtype=torch.uint8), pool[:, 1, 0], pool[:, 1, 1]
    norm.add_layer_norm_triton(x, x, x[0], x[0])
    norm.embed_layer_norm_triton(zeros, zeros, x, x, 32.0, x[0], x[0])
    for beams in (K, 1):
        self_attention.self_decode_attention_triton(
            qkv[: 8 * beams], cache[:, :, :beams], cache[:, :, :beams],
            table[:, :beams].contiguous(), zeros, k, v, zeros, zeros, beams,
        )  # fmt: skip
    for use_dot in (False, True):
        arguments = (x, k, v, zeros, zeros, zeros, K)
        cross_attention.cross_decode_attention_triton(*arguments, use_dot=use_dot)
    encoder_attention.encoder_attention_triton(qkv, zeros, 40, H)


def compile_vocabulary(dtype: torch.dtype, R: int, E: int) -> None:
    """The lm_head product and what follows it; in half precision also in eight bits."""
    V = 1024
    hidden, weight = torch.zeros(R, E, dtype=dtype), torch.zeros(V, E, dtype=dtype)
    kind = torch.float32 if dtype == torch.float32 else torch.float16
    relative = torch.zeros(R, V, dtype=kind)
    peak, total = torch.zeros(2, R, lm_head.num_tiles(V))
    lm_head.lm_head_tiles_triton(hidden, weight, relative, peak, total, V, V - 3)
    if dtype != torch.float32:
        rows, row_scale = quantize.quantize_rows_triton(hidden, torch.float8_e4m3fn)
        columns = weight.to(torch.float8_e4m3fn)
        scales = (row_scale, torch.zeros(V))
        lm_head.lm_head_tiles_triton(rows, columns, relative, peak, total, V, V - 3, scales)
    for num_best in (1, 4, 80, 4 * K):
        found = topk.merge_tiles_triton(relative, peak, total, V - 3, num_best)
    rescore.rescore_triton(hidden, weight, found, 2 * K)
    many = torch.zeros(R, 20 * lm_head.TILE, dtype=kind)
    tile = torch.zeros(R, 20)
    topk.merge_tiles_triton(many, tile, tile, 20 * lm_head.TILE, 20)


def compile_search(beam_size: int) -> None:
    n, T, C = 16, 24, search.num_candidates(beam_size)
    whole, real = torch.zeros(n, dtype=torch.int32), torch.zeros(n)
    beams = torch.zeros(n, beam_size)
    state = search.SearchState(
        whole,
        whole,
        whole,
        beams,
        beams,
        torch.zeros(n, T, beam_size, dtype=torch.int32),
        torch.zeros(n, beam_size, T, dtype=torch.uint8),
    )
    outbox = search.Outbox(torch.zeros(n, T, dtype=torch.int32), whole, real, whole)
    io = search.StepIO(whole, whole, whole, whole)
    values = torch.zeros(n * beam_size, C)
    scores = (values, values.to(torch.int32), values[:, 0].contiguous())
    for stopping in (search.STOP_HEURISTIC, search.STOP_FIRST, search.STOP_NEVER):
        search.beam_step_triton(state, outbox, io, scores, torch.ones(T + 1), (2, 1, stopping))
    source = admission.SlotSource(whole, whole, whole)
    queue = admission.Queue(*(whole for _ in range(8)))
    admission.admit_triton(state, source, queue, io)


if __name__ == "__main__":
    main(getattr(torch, sys.argv[1]))
