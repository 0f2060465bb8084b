"""Keys sort as the floats that they were made of, equal ones by index, and give both back."""

import pytest
import torch

from nllb_cli.kernels.optional_triton import tl, triton
from nllb_cli.kernels.ordering import key_index, key_value, ordered_key

HARD = [0.0, -0.0, 1.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, float("inf"), float("-inf"), 1.5, 0.0]


@triton.jit
def _keys_kernel(value_ptr, key_ptr, back_value_ptr, back_index_ptr, N: tl.constexpr):
    index = tl.arange(0, N)
    key = ordered_key(tl.load(value_ptr + index), index)
    tl.store(key_ptr + index, key)
    tl.store(back_value_ptr + index, key_value(key))
    tl.store(back_index_ptr + index, key_index(key))


@pytest.mark.parametrize("seed", range(3))
def test_keys_sort_as_floats_do(device, seed):
    values = torch.randn(64, generator=torch.Generator().manual_seed(seed)) * 100
    values[: len(HARD)] = torch.tensor(HARD)
    values = values.to(device)
    key = torch.empty(64, dtype=torch.int64, device=device)
    back = torch.empty_like(values)
    index = torch.empty(64, dtype=torch.int32, device=device)
    _keys_kernel[(1,)](values, key, back, index, N=64)
    assert torch.equal(back, values)
    assert index.tolist() == list(range(64))
    expected = values.sort(descending=True, stable=True)[1]
    assert key.sort(descending=True)[1].tolist() == expected.tolist()
