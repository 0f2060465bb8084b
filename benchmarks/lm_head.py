"""The eight-bit lm_head with other epilogues than the engine's: what would no logits save?

    python benchmarks/lm_head.py          # 4,096 and 2,048 rows, vocabulary 256,256, width 1,024

`logits` is what the engine runs. `none` leaves out only the writing of logits, `product` all but a
maximum: bounds, of no use. The others find candidates on the way out: a logit's low bits give way
to its column, so that a maximum says where it is. Each is checked against float64 first.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.testing import do_bench
from triton.tools.tensor_descriptor import TensorDescriptor

LOGITS, NONE, PRODUCT, TOP_1, TOP_2, TOP_2_OF_LANES = range(6)
NAMES = ("logits", "none", "product", "top 1 a tile", "top 2 a tile", "top 2 a quarter tile")
NUM_KEYS = (1, 1, 1, 1, 2, 8)
WIDTH, VOCABULARY, NUM_PADDED = 1024, 256_256, 50


@dataclass(frozen=True)
class Tiling:
    """Rows and columns a tile, warps, stages, programs a multiprocessor, flattened loop."""

    rows: int = 128
    columns: int = 256
    warps: int = 8
    stages: int = 3
    per_processor: int = 1
    flatten: bool = False


SMALL = Tiling(128, 128, 4, 3, 2)
FLAT = Tiling(64, 256, 4, 2, 2)
VARIANTS = [
    *[(mode, Tiling()) for mode in range(6)],
    *[(mode, Tiling(flatten=True)) for mode in (LOGITS, TOP_1, TOP_2, TOP_2_OF_LANES)],
    *[(mode, SMALL) for mode in (LOGITS, PRODUCT, TOP_1, TOP_2, TOP_2_OF_LANES)],
    *[(mode, Tiling(128, 128, 4, 2, 2)) for mode in (TOP_1, TOP_2)],
    *[(mode, FLAT) for mode in (PRODUCT, TOP_1, TOP_2, TOP_2_OF_LANES)],
    *[(mode, Tiling(256, 128, 8)) for mode in (PRODUCT, TOP_2)],
]


@triton.jit
def _best_two(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(tl.minimum(a, c), tl.maximum(b, d))


@triton.jit
def _kernel(
    hidden_desc,
    weight_desc,
    relative_desc,
    key_ptr,
    sum_ptr,
    row_scale_ptr,
    weight_scale_ptr,
    R,
    num_tokens,
    E: tl.constexpr,
    NUM_TILES: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_E: tl.constexpr,
    MODE: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    row_blocks = tl.cdiv(R, BLOCK_R)
    for index in tl.range(tl.program_id(0), row_blocks * NUM_TILES, NUM_PROGRAMS, flatten=FLATTEN):
        row = (index % row_blocks) * BLOCK_R
        tile = index // row_blocks
        first = tile * BLOCK_V
        logits = tl.zeros((BLOCK_R, BLOCK_V), tl.float32)
        for e in range(0, E, BLOCK_E):
            logits = tl.dot(hidden_desc.load([row, e]), weight_desc.load([first, e]).T, logits)
        rows = row + tl.arange(0, BLOCK_R)
        is_row = rows < R
        row_scale = tl.load(row_scale_ptr + rows, mask=is_row, other=0.0)
        column = tl.arange(0, BLOCK_V)
        logits *= tl.load(weight_scale_ptr + first + column)[None, :]
        if first + BLOCK_V > num_tokens:
            logits = tl.where((first + column < num_tokens)[None, :], logits, -3.0e38)
        place = rows.to(tl.int64) * NUM_TILES + tile
        if MODE == 2:
            tl.store(key_ptr + place, tl.max(logits, 1), mask=is_row)
        elif MODE <= 1:
            logits = logits * row_scale[:, None]
            peak = tl.max(logits, 1)
            shifted = logits - peak[:, None]
            tl.store(key_ptr + place, peak, mask=is_row)
            tl.store(sum_ptr + place, tl.sum(tl.exp(shifted), 1), mask=is_row)
            if MODE == 0:
                relative_desc.store([row, first], shifted.to(relative_desc.dtype))
        else:
            bits = logits.to(tl.int32, bitcast=True) & -BLOCK_V | column[None, :]
            keyed = bits.to(tl.float32, bitcast=True)
            slope = row_scale * 1.4426950408889634  # exp(x * row_scale) = exp2(x * slope)
            if MODE == 3:
                peak = tl.max(keyed, 1)
                total = tl.sum(tl.exp2(keyed * slope[:, None] - (peak * slope)[:, None]), 1)
                tl.store(key_ptr + place, peak, mask=is_row)
            elif MODE == 4:
                a, b = tl.split(tl.reshape(keyed, (BLOCK_R, BLOCK_V // 2, 2)))
                a, b = tl.maximum(a, b), tl.minimum(a, b)
                peak, second = tl.reduce((a, b), 1, _best_two)
                shift = (peak * slope)[:, None]
                slope = slope[:, None]
                total = tl.sum(tl.exp2(a * slope - shift) + tl.exp2(b * slope - shift), 1)
                tl.store(key_ptr + place * 2, peak, mask=is_row)
                tl.store(key_ptr + place * 2 + 1, second, mask=is_row)
            else:  # a thread holds every fourth pair of a row's columns
                a, b = tl.split(tl.reshape(keyed, (BLOCK_R, BLOCK_V // 8, 4, 2)))
                a, b = tl.maximum(a, b), tl.minimum(a, b)
                best, second = tl.reduce((a, b), 1, _best_two)
                shift = (tl.max(best, 1) * slope)[:, None, None]
                slope = slope[:, None, None]
                parts = tl.sum(tl.exp2(a * slope - shift) + tl.exp2(b * slope - shift), 1)
                total = tl.sum(parts, 1)
                key = place[:, None] * 8 + 2 * tl.arange(0, 4)[None, :]
                tl.store(key_ptr + key, best, mask=is_row[:, None])
                tl.store(key_ptr + key + 1, second, mask=is_row[:, None])
            tl.store(sum_ptr + place, total, mask=is_row)


class Product:
    """Random rows and weights in eight bits, and room for what each variant writes."""

    def __init__(self, num_rows: int) -> None:
        self.hidden = (torch.randn(num_rows, WIDTH, device="cuda") * 99).to(torch.float8_e4m3fn)
        self.weight = (torch.randn(VOCABULARY, WIDTH, device="cuda") * 99).to(torch.float8_e4m3fn)
        self.row_scale = torch.rand(num_rows, device="cuda") * 1e-3 + 1e-3
        self.weight_scale = torch.rand(VOCABULARY, device="cuda") * 1e-2 + 1e-3
        self.relative = torch.empty(num_rows, VOCABULARY, dtype=torch.float16, device="cuda")

    def run(self, mode: int, tiling: Tiling) -> tuple[Tensor, Tensor]:
        """Shapes: keys [R, tiles, k], sums [R, tiles] fp32."""
        num_rows, num_tiles = len(self.hidden), triton.cdiv(VOCABULARY, tiling.columns)
        keys = torch.empty(num_rows, num_tiles, NUM_KEYS[mode], device="cuda")
        sums = torch.empty(num_rows, num_tiles, device="cuda")
        blocks = triton.cdiv(num_rows, tiling.rows) * num_tiles
        programs = min(blocks, 132 * tiling.per_processor)
        _kernel[(programs,)](
            TensorDescriptor.from_tensor(self.hidden, [tiling.rows, 128]),
            TensorDescriptor.from_tensor(self.weight, [tiling.columns, 128]),
            TensorDescriptor.from_tensor(self.relative, [tiling.rows, tiling.columns]),
            keys,
            sums,
            self.row_scale,
            self.weight_scale,
            num_rows,
            VOCABULARY - NUM_PADDED,
            E=WIDTH,
            NUM_TILES=num_tiles,
            NUM_PROGRAMS=programs,
            BLOCK_R=tiling.rows,
            BLOCK_V=tiling.columns,
            BLOCK_E=128,
            MODE=mode,
            FLATTEN=tiling.flatten,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
        return keys, sums

    def check(self, mode: int, tiling: Tiling) -> str:
        """Compare a few rows with float64; say how far the log-sum-exp is off."""
        rows = torch.arange(0, len(self.hidden), len(self.hidden) // 8, device="cuda")
        exact = (self.hidden[rows].float() @ self.weight.float().T).double() * self.weight_scale
        exact[:, -NUM_PADDED:] = float("-inf")
        keys, sums = (found[rows] for found in self.run(mode, tiling))
        if mode == PRODUCT:
            return ""
        scale = 1.0 if mode <= NONE else self.row_scale[rows, None].double()
        lse = (keys.double().amax(2) * scale + sums.double().log()).logsumexp(1)
        wanted = (exact * self.row_scale[rows, None].double()).logsumexp(1)
        error = f"lse {float((lse - wanted).abs().max()):.1e} off"
        if mode <= NONE:
            return error
        column = (keys.view(torch.int32) & (tiling.columns - 1)).long()
        tile = torch.arange(keys.shape[1], device="cuda")[:, None] * tiling.columns
        ids = (tile + column).flatten(1)
        best = ids.gather(1, keys.flatten(1).topk(8, 1).indices).tolist()
        top = exact.topk(8, 1).indices.tolist()
        missing = sum(len(set(a) - set(b)) for a, b in zip(top, best, strict=True))
        return f"{error}, {missing} of {8 * len(rows)} best missing"


def compile_ahead(product: Product) -> None:
    """Compile all variants at the same time; errors show when a variant is timed."""

    def attempt(variant: tuple[int, Tiling]) -> None:
        try:
            product.run(*variant)
        except Exception:
            return

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(attempt, VARIANTS))
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[4096, 2048])
    torch.manual_seed(0)
    for num_rows in parser.parse_args().rows:
        product = Product(num_rows)
        compile_ahead(product)
        for mode, tiling in VARIANTS:
            try:
                said = product.check(mode, tiling)
            except Exception as error:
                print(f"{num_rows} rows {NAMES[mode]} {tiling} failed: {str(error)[:80]}")
                continue
            ms = do_bench(
                lambda p=product, m=mode, t=tiling: p.run(m, t), 10, 60, return_mode="median"
            )
            print(f"{num_rows} rows {NAMES[mode]:21} {ms:.3f} ms {tiling} {said}", flush=True)


if __name__ == "__main__":
    main()
