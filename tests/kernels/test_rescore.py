"""Exact logits of coarse candidates: the kernel against its twin and against all logits."""

import pytest
import torch

from nllb_cli.kernels import rescore


def coarse(R, E, V, N, noise, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(R, E, generator=generator)
    weight = torch.randn(V, E, generator=generator) * 0.3
    logits = hidden @ weight.T
    rough = logits + noise * torch.randn(R, V, generator=generator)
    values, ids = rough.topk(N, 1)
    found = (values, ids.to(torch.int32), rough.logsumexp(1))
    return [t.to(device) for t in (hidden, weight)], tuple(t.to(device) for t in found), logits


@pytest.mark.parametrize(("R", "E", "V", "N", "num_best"), [(1, 64, 50, 4, 1), (9, 300, 90, 16, 8)])
def test_agrees_with_twin(device, R, E, V, N, num_best):
    (hidden, weight), found, _ = coarse(R, E, V, N, 0.1, device)
    actual = rescore.rescore_triton(hidden, weight, found, num_best)
    expected = rescore.rescore_reference(hidden, weight, found, num_best)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-5, atol=1e-5)
    assert actual[1].tolist() == expected[1].tolist()
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-5, atol=1e-5)


def test_finds_the_exact_best_and_almost_the_exact_sum(device):
    (hidden, weight), found, logits = coarse(20, 128, 400, 24, 0.1, device)
    values, ids, lse = rescore.rescore_triton(hidden, weight, found, 8)
    best, order = logits.sort(dim=1, descending=True, stable=True)
    assert ids.tolist() == order[:, :8].tolist()
    torch.testing.assert_close(values.cpu(), best[:, :8], rtol=1e-4, atol=1e-4)
    exact = logits.logsumexp(1)
    error = (lse.cpu() - exact).abs().max()
    assert error < 0.01
    assert error < 0.3 * (found[2].cpu() - exact).abs().max()


def test_equal_logits_come_lowest_id_first(device):
    weight = torch.ones(12, 32, device=device)
    hidden = torch.ones(1, 32, device=device)
    ids = torch.tensor([[7, 3, 9, 5]], dtype=torch.int32, device=device)
    found = (torch.full((1, 4), 32.0, device=device), ids, torch.full((1,), 34.0, device=device))
    assert rescore.rescore_triton(hidden, weight, found, 3)[1].tolist() == [[3, 5, 7]]
    assert rescore.rescore_reference(hidden, weight, found, 3)[1].tolist() == [[3, 5, 7]]


def test_a_row_that_is_not_finite_stays_so(device):
    (hidden, weight), (values, ids, lse), _ = coarse(3, 64, 50, 4, 0.1, device)
    lse[1] = float("nan")
    found = rescore.rescore_triton(hidden, weight, (values, ids, lse), 2)
    assert found[2].isfinite().tolist() == [True, False, True]
