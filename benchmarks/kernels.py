"""Time the kernels of decoder and encoder on a GPU, beside the bytes that they must move.

Every op is checked against its twin first; a wrong one prints no speed. Layers have their own
tensors, as in a model, so that what a layer reads is not left in the cache by the last replay.

    python benchmarks/kernels.py                  # all ops, 256 and 1,024 sentences, small sweeps
    python benchmarks/kernels.py --only self --sentences 256 --beams 4 --sharing none
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from nllb_cli.kernels import cross_attention, encoder_attention, norm, self_attention

H, D, LAYERS = 16, 64, 6
E = H * D
MAX_TARGET, MAX_SOURCE = 60, 63
LONG_TARGET, LONG_SOURCE = 500, 1000


@dataclass
class Case:
    """One op at one size: how to run it, what it must move, what to try."""

    name: str
    run: Callable[..., Any]  # run(layer, **tuning)
    num_bytes: float
    sweep: list[dict[str, Any]] = field(default_factory=list)


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device="cuda")


def evolve(lengths: Tensor, K: int, T: int, sharing: str) -> Tensor:
    """Play a beam search up to each length: every beam takes a parent, most often a good one.

    Returns the indirection table [slots, K, T]; with sharing "none" each beam keeps its own row.
    """
    slots = len(lengths)
    beams = torch.arange(K, device="cuda")
    table = beams[None, :, None].repeat(slots, 1, T)
    if sharing == "none":
        return table.to(torch.uint8)
    odds = torch.exp2(-0.5 * beams.float()).expand(slots, K)
    for t in range(1, T):
        parents = odds.multinomial(K, replacement=True).sort(-1).values  # [slots, K]
        table[:, :, 1:t] = table.gather(1, parents[:, :, None].expand(-1, -1, T))[:, :, 1:t]
        table[:, :, t] = parents
    # the youngest position of each slot is the last step of the play
    column = (torch.arange(T, device="cuda") + T - lengths[:, None]).clamp(0, T - 1)
    return table.gather(2, column[:, None].expand(-1, K, -1)).to(torch.uint8)


def self_state(
    n: int, K: int, sharing: str, layers: int, dtype: torch.dtype, num_long: int = 0
) -> dict[str, Any]:
    T = LONG_TARGET + 4 if num_long else MAX_TARGET + 4
    cache = random(layers, 2, n, T, K, H, D, dtype=dtype)
    prefix = random(layers, 2, 4, H, D, dtype=dtype)
    lengths = torch.randint(1, MAX_TARGET + 1, (n,), device="cuda", dtype=torch.int32)
    lengths[:num_long] = LONG_TARGET
    return {
        "qkv": random(layers, n * K, 3 * E, dtype=dtype),
        "cache": cache,
        "prefix": prefix,
        "indirection": evolve(lengths, K, T, sharing),
        "lengths": lengths,
        "prefix_rows": torch.randint(0, 4, (n,), device="cuda", dtype=torch.int32),
        "slot_ids": torch.randperm(n, device="cuda").to(torch.int32),
        "beam_size": K,
    }


def call_self(state: dict[str, Any], run: Callable[..., Tensor], layer: int, **tuning: Any) -> Any:
    return run(
        state["qkv"][layer],
        state["cache"][layer, 0],
        state["cache"][layer, 1],
        state["indirection"],
        state["lengths"],
        state["prefix"][layer, 0],
        state["prefix"][layer, 1],
        state["prefix_rows"],
        state["slot_ids"],
        state["beam_size"],
        **tuning,
    )


def count_rows(table: Tensor, lengths: Tensor) -> int:
    """Return how many different cache rows a step reads."""
    position = torch.arange(table.shape[2], device="cuda")
    is_read = (position > 0) & (position < lengths[:, None])  # [slots, T]
    used = torch.zeros_like(table, dtype=torch.bool).scatter_(1, table.long(), True)
    return int((used & is_read[:, None]).sum())


def self_case(n: int, K: int, sharing: str, num_long: int) -> Case:
    state = self_state(n, K, sharing, LAYERS, torch.bfloat16, num_long)
    rows = count_rows(state["indirection"], state["lengths"])
    num_bytes = 2 * E * (2 * rows + n * K * (3 + 1 + 2))
    sweep = [
        {"block_r": block_r, "block_w": block_w, "block_t": block_t, "num_stages": stages}
        for block_r, block_w, block_t, stages in (
            *((4, 1, 4, 1), (4, 1, 8, 1), (4, 1, 16, 1), (4, 2, 4, 1), (4, 2, 8, 1), (4, 4, 4, 1)),
            *((8, 1, 8, 1), (8, 2, 4, 1), (16, 1, 4, 1), (16, 1, 8, 1), (4, 1, 8, 2), (4, 1, 8, 3)),
        )
    ]
    run = partial(call_self, state, self_attention.self_decode_attention_triton)
    return Case(f"self {n}x{K} share {sharing}", run, num_bytes, sweep)


def cross_state(
    n: int, K: int, layers: int, dtype: torch.dtype, num_long: int = 0
) -> dict[str, Any]:
    lengths = torch.randint(3, MAX_SOURCE + 1, (n,), device="cuda", dtype=torch.int32)
    lengths[:num_long] = LONG_SOURCE
    ends = lengths.cumsum(0)
    return {
        "q": random(layers, n * K, E, dtype=dtype),
        "pool": random(int(ends[-1]), layers, 2, H, D, dtype=dtype),
        "starts": (ends - lengths).to(torch.int32),
        "lengths": lengths,
        "slot_ids": torch.randperm(n, device="cuda").to(torch.int32),
        "beam_size": K,
    }


def call_cross(state: dict[str, Any], run: Callable[..., Tensor], layer: int, **tuning: Any) -> Any:
    return run(
        state["q"][layer],
        state["pool"][:, layer, 0],
        state["pool"][:, layer, 1],
        state["starts"],
        state["lengths"],
        state["slot_ids"],
        state["beam_size"],
        **tuning,
    )


def cross_case(n: int, K: int, num_long: int) -> Case:
    state = cross_state(n, K, LAYERS, torch.bfloat16, num_long)
    num_bytes = 2 * E * (2 * len(state["pool"]) + 2 * n * K)
    sweep: list[dict[str, Any]] = [
        {"use_dot": True, "block_s": block_s, "num_warps": w, "num_stages": stages}
        for block_s, w, stages in (
            *((16, 1, 1), (32, 1, 1), (64, 1, 1), (32, 2, 1), (64, 2, 1), (64, 4, 1)),
            *((32, 1, 2), (32, 2, 2), (16, 1, 3)),
        )
    ]
    sweep += [
        {"use_dot": False, "block_r": block_r, "block_w": block_w, "block_s": block_s}
        for block_r, block_w, block_s in (
            *((4, 1, 4), (4, 1, 8), (4, 1, 16), (4, 2, 8), (4, 4, 4), (4, 4, 8), (8, 1, 8)),
            *((16, 1, 8), (8, 2, 4)),
        )
    ]
    run = partial(call_cross, state, cross_attention.cross_decode_attention_triton)
    return Case(f"cross {n}x{K}", run, num_bytes, sweep)


def norm_case(R: int) -> Case:
    x, delta = random(LAYERS, R, E), random(LAYERS, R, E)
    weight, bias = random(E), random(E)

    def run(layer: int, **tuning: Any) -> Tensor:
        return norm.add_layer_norm_triton(x[layer], delta[layer], weight, bias, **tuning)

    return Case(f"norm {R}", run, 2 * E * 4 * R, [{"num_warps": w} for w in (1, 2, 4, 8)])


def embed_case(R: int) -> Case:
    table, places, weight, bias = random(256_256, E), random(1026, E), random(E), random(E)
    tokens = torch.randint(256_000, (LAYERS, R), device="cuda")
    positions = torch.randint(1026, (LAYERS, R), device="cuda", dtype=torch.int32)

    def run(layer: int, **tuning: Any) -> Any:
        return norm.embed_layer_norm_triton(
            tokens[layer], positions[layer], table, places, 32.0, weight, bias, **tuning
        )

    return Case(f"embed {R}", run, 2 * E * 3 * R, [{"num_warps": w} for w in (1, 2, 4)])


def encoder_case(num_tokens: int, longest: int) -> Case:
    lengths = torch.randint(min(3, longest), longest + 1, (num_tokens,))
    lengths = lengths[: int((lengths.cumsum(0) <= num_tokens).sum())]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to("cuda", torch.int32)
    N = int(lengths.sum())
    qkv = random(LAYERS, N, 3 * E)

    def run(layer: int, **tuning: Any) -> Tensor:
        return encoder_attention.encoder_attention_triton(qkv[layer], starts, longest, H, **tuning)

    sweep = [
        {"block_q": q, "block_s": s, "num_warps": w, "num_stages": stages}
        for q, s, w, stages in (
            *((32, 32, 1, 1), (32, 32, 2, 2), (32, 64, 2, 1), (64, 32, 4, 2), (64, 64, 4, 1)),
            *((64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 4, 2), (128, 64, 8, 2)),
        )
    ]
    return Case(f"encoder {N} tokens to {longest}", run, 2 * E * 4 * N, sweep)


def check(dtype: torch.dtype, K: int) -> None:
    """Raise where an op differs from its twin, which computes in fp32."""
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    n = 37
    state = self_state(n, K, "ancestors", 1, dtype)
    twin, kernel = (
        self_attention.self_decode_attention_reference,
        self_attention.self_decode_attention_triton,
    )
    close(call_self(state, kernel, 0), call_self(state, twin, 0))
    state = cross_state(n, K, 1, dtype)
    expected = call_cross(state, cross_attention.cross_decode_attention_reference, 0)
    for use_dot in (False, True):
        kernel = cross_attention.cross_decode_attention_triton
        close(call_cross(state, kernel, 0, use_dot=use_dot), expected)
    x, delta, weight, bias = (random(n, E, dtype=dtype) for _ in range(4))
    twin_x = x.clone()
    expected = norm.add_layer_norm_reference(twin_x, delta, weight[0], bias[0])
    close(norm.add_layer_norm_triton(x, delta, weight[0], bias[0]), expected)
    close(x, twin_x)
    qkv, starts = random(200, 3 * E, dtype=dtype), torch.tensor([0, 1, 64, 200], device="cuda")
    arguments = (qkv, starts.to(torch.int32), 136, H)
    expected = encoder_attention.encoder_attention_reference(*arguments)
    close(encoder_attention.encoder_attention_triton(*arguments), expected)


def time_in_graph(run: Callable[[int], Any], replays: int = 7) -> float:
    """Return the median milliseconds of one op inside a captured graph of LAYERS of them."""
    run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(LAYERS):
            run(layer)
    times = []
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / LAYERS)
    return sorted(times)[replays // 2]


def report(case: Case, tuning: dict[str, Any], peak: float) -> float:
    try:
        ms = time_in_graph(partial(case.run, **tuning))
    except Exception as error:  # a variant that does not fit the machine must not stop the rest
        print(f"  {case.name:34} {tuning or 'default'}: {type(error).__name__} {str(error)[:90]}")
        return math.inf
    share = case.num_bytes / (ms * 1e-3) / peak
    label = " ".join(f"{key}={value}" for key, value in tuning.items()) or "default"
    size = f"{case.num_bytes / 2**20:8.1f} MiB"
    print(f"  {case.name:34} {ms:8.4f} ms {size} {share:6.1%}  {label}", flush=True)
    return ms


def compile_ahead(case: Case, tunings: Iterable[dict[str, Any]]) -> None:
    """Compile all variants at the same time; errors show when a variant is timed."""

    def attempt(tuning: dict[str, Any]) -> None:
        try:
            case.run(0, **tuning)
        except Exception:
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, tunings))
    torch.cuda.synchronize()


def makers(arguments: argparse.Namespace) -> list[Callable[[], Case]]:
    """Return what was asked for, still to be built, so that only one case holds memory."""
    found: list[tuple[str, Callable[[], Case]]] = []
    for n in arguments.sentences:
        for K in arguments.beams:
            for sharing in arguments.sharing if K > 1 else ("none",):
                found.append(("self", partial(self_case, n, K, sharing, arguments.long)))
            found.append(("cross", partial(cross_case, n, K, arguments.long)))
            found.append(("norm", partial(norm_case, n * K)))
            found.append(("embed", partial(embed_case, n * K)))
    for num_tokens, longest in ((8192, 63), (8192, 20), (8192, 512)):
        found.append(("encoder", partial(encoder_case, num_tokens, longest)))
    return [make for name, make in found if name in arguments.only]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ops = ("self", "cross", "norm", "embed", "encoder")
    parser.add_argument("--only", nargs="+", choices=ops, default=list(ops))
    parser.add_argument("--sentences", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--beams", nargs="+", type=int, default=[4])
    parser.add_argument(
        "--sharing", nargs="+", choices=["ancestors", "none"], default=["ancestors", "none"]
    )
    parser.add_argument("--long", type=int, default=0, help="sentences of 1,000 in, 500 out")
    parser.add_argument("--no-sweep", action="store_true", help="only the defaults")
    parser.add_argument("--no-check", action="store_true", help="skip the twins")
    parser.add_argument("--budget-s", type=float, default=55, help="no new sweep after this")
    parser.add_argument("--peak", type=float, default=4.27e12, help="bytes/s of the memory")
    arguments = parser.parse_args()
    began = time.monotonic()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    if not arguments.no_check:
        for dtype in (torch.float32, torch.bfloat16):
            check(dtype, max(arguments.beams))
        print(f"  all ops agree with their twins ({time.monotonic() - began:.1f} s)")
    best: list[str] = []
    for make in makers(arguments):
        case = make()
        is_swept = not arguments.no_sweep and time.monotonic() - began < arguments.budget_s
        tunings = [{}, *(case.sweep if is_swept else [])]
        compile_ahead(case, tunings)
        times = [report(case, tuning, arguments.peak) for tuning in tunings]
        fastest = min(range(len(times)), key=times.__getitem__)
        best.append(f"  {case.name:34} {times[0]:8.4f} -> {times[fastest]:8.4f} {tunings[fastest]}")
        del case
        torch.cuda.empty_cache()
    print("default -> best", *best, f"  {time.monotonic() - began:.1f} s in all", sep="\n")


if __name__ == "__main__":
    main()
