"""The merge of lm_head tiles against its twin and against a plain sort of all logits."""

import pytest
import torch

from nllb_cli.kernels import lm_head, topk


def tiles(R, V_padded, vocab_size, num_tokens, device, seed=0, values=None):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(R, 16, generator=generator) if values is None else values
    weight = torch.randn(V_padded, 16, generator=generator)
    if values is not None:
        weight = torch.randint(-2, 3, weight.shape, generator=generator).float()
    count = lm_head.num_tiles(V_padded)
    out = [torch.zeros(R, V_padded), torch.zeros(R, count), torch.zeros(R, count)]
    lm_head.lm_head_tiles_reference(hidden, weight, *out, vocab_size, num_tokens)
    return [tensor.to(device) for tensor in out], hidden @ weight.T


@pytest.mark.parametrize("num_best", [1, 8, 10, 40])
@pytest.mark.parametrize(
    ("R", "V_padded", "vocab_size", "num_tokens"),
    [(1, 128, 120, 117), (3, 640, 600, 511), (2, 1280, 1280, 1280)],
)
def test_agrees_with_a_sort_of_all_logits(device, num_best, R, V_padded, vocab_size, num_tokens):
    parts, logits = tiles(R, V_padded, vocab_size, num_tokens, device)
    values, ids, lse = topk.merge_tiles_triton(*parts, num_tokens, num_best)
    expected, order = logits[:, :num_tokens].sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(values.cpu(), expected[:, :num_best], rtol=1e-5, atol=1e-5)
    assert ids.tolist() == order[:, :num_best].tolist()
    torch.testing.assert_close(lse.cpu(), logits[:, :vocab_size].logsumexp(1), rtol=1e-5, atol=1e-5)
    twin = topk.merge_tiles_reference(*parts, num_tokens, num_best)
    torch.testing.assert_close(values, twin[0], rtol=1e-5, atol=1e-5)
    assert ids.tolist() == twin[1].tolist()
    torch.testing.assert_close(lse, twin[2], rtol=1e-5, atol=1e-5)


def test_of_equal_logits_the_lowest_id_comes_first(device):
    """Integer logits tie often; chance of passing with another order is nil at this many rows."""
    values = torch.randint(-1, 2, (9, 16), generator=torch.Generator().manual_seed(3)).float()
    parts, logits = tiles(9, 768, 768, 700, device, values=values)
    _, ids, _ = topk.merge_tiles_triton(*parts, 700, 8)
    order = logits[:, :700].sort(dim=1, descending=True, stable=True)[1]
    assert ids.tolist() == order[:, :8].tolist()


@pytest.mark.parametrize("kind", ["spread", "in few tiles", "many equal", "all equal"])
@pytest.mark.parametrize("num_best", [17, 24])
def test_many_of_many_tiles(device, kind, num_best):
    """From one threshold, from a search for one, and one after the other where none exists."""
    num_tokens, V_padded = 24 * 256 - 100, 25 * 256
    logits = torch.randn(2, V_padded, generator=torch.Generator().manual_seed(num_best))
    if kind == "in few tiles":
        logits[:, 300:1900] += 9.0
    elif kind == "many equal":
        logits[:, ::3] = 4.0
        logits[:, 2000:2010] = 5.0
    elif kind == "all equal":
        logits.zero_()
    count = lm_head.num_tiles(V_padded)
    parts = [torch.zeros(2, V_padded), torch.zeros(2, count), torch.zeros(2, count)]
    one = torch.eye(V_padded)
    lm_head.lm_head_tiles_reference(logits, one, *parts, V_padded - 50, num_tokens)
    found = topk.merge_tiles_triton(*(part.to(device) for part in parts), num_tokens, num_best)
    expected, order = logits[:, :num_tokens].sort(dim=1, descending=True, stable=True)
    assert found[1].tolist() == order[:, :num_best].tolist()
    torch.testing.assert_close(found[0].cpu(), expected[:, :num_best], rtol=1e-5, atol=1e-5)
    lse = logits[:, : V_padded - 50].logsumexp(1)
    torch.testing.assert_close(found[2].cpu(), lse, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN")
def test_many_of_a_row_that_is_not_finite_stay_within_the_vocabulary(device):
    parts, _ = tiles(3, 20 * 256, 20 * 256, 20 * 256, device)
    for part in parts:
        part[1] = float("nan")
    _, ids, lse = topk.merge_tiles_triton(*parts, 20 * 256, 18)
    assert lse.isfinite().tolist() == [True, False, True]
    assert 0 <= int(ids.min()) <= int(ids.max()) < 20 * 256


def test_a_row_that_is_not_finite_says_so(device):
    parts, _ = tiles(3, 256, 256, 256, device)
    parts[2][1, 0] = float("nan")
    lse = topk.merge_tiles_triton(*parts, 256, 4)[2]
    assert lse.isfinite().tolist() == [True, False, True]
