"""A larger fusion: residual sum and layer norm inside the products before and after them.

    python benchmarks/fusion.py      # d 1024 into q, q/k/v and the feed-forward layer

The engine runs a cuBLAS product, the fused residual and norm kernel, and the next product. Here the
first product adds the residual stream and sums each row and its squares, and the second takes the
norm by algebra: norm(x) W = (x W' - mean(x) sum(W')) / std(x) + b', with W' = weight * W. Both in
Triton, at the best of six tilings each. That it also loses precision (x is rounded before its
norm) does not matter if it is not faster.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear
from triton.testing import do_bench
from triton.tools.tensor_descriptor import TensorDescriptor

from nllb_cli.kernels.norm import add_layer_norm

E = 1024
TILINGS = (
    # rows, columns, warps, stages, programs a multiprocessor
    (128, 256, 8, 3, 1),
    (128, 128, 4, 3, 2),
    (128, 128, 8, 4, 1),
    (64, 128, 4, 4, 2),
    (128, 128, 8, 3, 2),
    (64, 256, 4, 4, 1),
)


@triton.jit
def _residual_kernel(
    a_desc, w_desc, x_desc, bias_ptr, sums_ptr, M, NUM_PROGRAMS,
    N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    TILES: tl.constexpr = N // BN
    for index in tl.range(tl.program_id(0), tl.cdiv(M, BM) * TILES, NUM_PROGRAMS):
        m, n = (index // TILES) * BM, (index % TILES) * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a_desc.load([m, k]), w_desc.load([n, k]).T, total)
        total += tl.load(bias_ptr + n + tl.arange(0, BN)).to(tl.float32)[None, :]
        total += x_desc.load([m, n]).to(tl.float32)
        rows = m + tl.arange(0, BM)
        place = (rows * TILES + index % TILES) * 2
        tl.store(sums_ptr + place, tl.sum(total, 1), mask=rows < M)
        tl.store(sums_ptr + place + 1, tl.sum(total * total, 1), mask=rows < M)
        x_desc.store([m, n], total.to(tl.bfloat16))


@triton.jit
def _normed_kernel(
    x_desc, w_desc, out_desc, bias_ptr, weight_sum_ptr, sums_ptr, M, NUM_PROGRAMS,
    N: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    TILES: tl.constexpr = N // BN
    for index in tl.range(tl.program_id(0), tl.cdiv(M, BM) * TILES, NUM_PROGRAMS):
        m, n = (index // TILES) * BM, (index % TILES) * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(x_desc.load([m, k]), w_desc.load([n, k]).T, total)
        rows = m + tl.arange(0, BM)
        part = (rows[:, None] * PARTS + tl.arange(0, PARTS)[None, :]) * 2
        is_row = (rows < M)[:, None]
        mean = tl.sum(tl.load(sums_ptr + part, mask=is_row, other=0.0), 1) / K
        square = tl.sum(tl.load(sums_ptr + part + 1, mask=is_row, other=0.0), 1) / K
        scale = tl.rsqrt(square - mean * mean + 1e-5)
        column = n + tl.arange(0, BN)
        centered = total - mean[:, None] * tl.load(weight_sum_ptr + column)[None, :]
        out = scale[:, None] * centered + tl.load(bias_ptr + column)[None, :]
        if RELU:
            out = tl.maximum(out, 0.0)
        out_desc.store([m, n], out.to(tl.bfloat16))


def microseconds(run: Callable[[], object], repeat: int = 20) -> float:
    """Time inside a captured graph, as in the engine."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            run()
    return do_bench(graph.replay, 20, 100, return_mode="median") / repeat * 1e3


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


class Pair:
    """A product back to the residual stream, the norm, and the next product."""

    def __init__(self, M: int, N: int, relu: bool) -> None:
        self.M, self.N, self.relu = M, N, relu
        self.a, self.x, self.out = random(M, E), random(M, E), random(M, N)
        self.w1, self.b1, self.w2, self.b2 = (
            random(E, E) / 32,
            random(E),
            random(N, E) / 32,
            random(N),
        )
        self.weight, self.bias = random(E) / 4 + 1, random(E)
        self.folded = (self.w2.float() * self.weight.float()).bfloat16()
        self.folded_sum = self.folded.float().sum(1)
        self.folded_bias = self.b2.float() + self.w2.float() @ self.bias.float()
        self.sums = torch.empty(M, 1, 2, device="cuda")

    def products(self, with_norm: bool) -> Tensor:
        """What the engine runs, or without its norm."""
        hidden = linear(self.a, self.w1, self.b1)
        if with_norm:
            hidden = add_layer_norm(self.x, hidden, self.weight, self.bias)
        if self.relu:
            return torch._addmm_activation(self.b2, hidden, self.w2.T)
        return linear(hidden, self.w2, self.b2)

    def residual(self, tiling: tuple[int, ...]) -> None:
        """The first product with what follows it."""
        bm, bn, warps, stages, programs = tiling
        programs = min(132 * programs, triton.cdiv(self.M, bm) * (E // bn))
        if self.sums.shape[1] != E // bn:
            self.sums = torch.empty(self.M, E // bn, 2, device="cuda")
        _residual_kernel[(programs,)](
            TensorDescriptor.from_tensor(self.a, [bm, 64]),
            TensorDescriptor.from_tensor(self.w1, [bn, 64]),
            TensorDescriptor.from_tensor(self.x, [bm, bn]),
            self.b1, self.sums, self.M, programs,
            N=E, K=E, BM=bm, BN=bn, BK=64, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def normed(self, tiling: tuple[int, ...]) -> None:
        """The second product with the norm before it."""
        bm, bn, warps, stages, programs = tiling
        programs = min(132 * programs, triton.cdiv(self.M, bm) * (self.N // bn))
        _normed_kernel[(programs,)](
            TensorDescriptor.from_tensor(self.x, [bm, 64]),
            TensorDescriptor.from_tensor(self.folded, [bn, 64]),
            TensorDescriptor.from_tensor(self.out, [bm, bn]),
            self.folded_bias, self.folded_sum, self.sums, self.M, programs,
            N=self.N, K=E, PARTS=self.sums.shape[1], RELU=self.relu, BM=bm, BN=bn, BK=64,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip


def fastest(run: Callable[[tuple[int, ...]], None]) -> tuple[float, tuple[int, ...]]:
    """The best tiling; one that does not compile or fit is left out."""
    times = []
    for tiling in TILINGS:
        try:
            times.append((microseconds(lambda t=tiling: run(t)), tiling))
        except Exception as error:
            print(f"  {tiling} failed: {str(error)[:80]}")
    return min(times)


def main() -> None:
    torch.manual_seed(0)
    for M in (4096, 2048):
        for N, relu in ((E, False), (3 * E, False), (4 * E, True)):
            pair = Pair(M, N, relu)
            bare = microseconds(lambda p=pair: p.products(False))
            plain = microseconds(lambda p=pair: p.products(True))
            first, first_tiling = fastest(pair.residual)
            pair.residual(first_tiling)
            second, second_tiling = fastest(pair.normed)

            def fused(p=pair, one=first_tiling, two=second_tiling) -> None:
                p.residual(one)
                p.normed(two)

            pair.x.copy_(random(M, E))
            start = pair.x.clone()
            wanted = pair.products(True).float()
            pair.x.copy_(start)
            fused()
            error = float((pair.out.float() - wanted).norm() / wanted.norm())
            pair.x.copy_(start)
            print(
                f"{M} rows, {E} -> {E} -> {N}: cuBLAS and norm {plain:.1f} us (products alone "
                f"{bare:.1f}), fused {microseconds(fused):.1f} us ({first:.1f} {first_tiling}, "
                f"{second:.1f} {second_tiling}), off by {error:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
