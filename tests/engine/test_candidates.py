"""The block search gives what a stable sort of the whole vocabulary gives."""

import math

import pytest
import torch

from nllb_cli.engine.candidates import CandidateFinder, top_tokens


def sorted_tokens(logits, count):
    values, tokens = logits.sort(dim=1, descending=True, stable=True)
    return values[:, :count], tokens[:, :count]


def top_candidates(hidden, lm_head, sizes, count):
    return CandidateFinder(lm_head, *sizes).find(hidden, count)


@pytest.mark.parametrize("count", [1, 2, 8, 10, 64])
@pytest.mark.parametrize("levels", [3, 50, 10**6], ids=["many ties", "ties", "hardly any tie"])
def test_top_tokens_equal_a_stable_sort(count, levels):
    generator = torch.Generator().manual_seed(count + levels)
    logits = torch.randint(levels, (37, 1280), generator=generator).float()
    values, tokens = top_tokens(logits, count)
    expected_values, expected_tokens = sorted_tokens(logits, count)
    assert torch.equal(values, expected_values)
    assert torch.equal(tokens, expected_tokens)


def test_ties_across_blocks_go_to_the_lower_token():
    logits = torch.zeros(1, 512)
    logits[0, [500, 300, 129, 70]] = 1.0
    assert top_tokens(logits, 2)[1].tolist() == [[70, 129]]


@pytest.mark.parametrize("num_tokens", [97, 120, 128])
def test_probabilities_sum_over_the_model_and_the_choice_over_its_tokens(num_tokens):
    generator = torch.Generator().manual_seed(0)
    vocab_size, E = 128, 16
    hidden = torch.randn(5, E, generator=generator)
    lm_head = torch.randn(256, E, generator=generator)
    lm_head[vocab_size:] = 100.0  # padding rows would win if they counted
    log_prob, tokens = top_candidates(hidden, lm_head, (vocab_size, num_tokens), 8)
    expected = torch.log_softmax(hidden @ lm_head[:vocab_size].T, dim=1)[:, :num_tokens]
    values, order = sorted_tokens(expected, 8)
    assert torch.equal(tokens, order)
    torch.testing.assert_close(log_prob, values)


def test_fewer_tokens_than_candidates():
    hidden, lm_head = torch.randn(3, 4), torch.randn(128, 4)
    log_prob, tokens = top_candidates(hidden, lm_head, (5, 5), 8)
    assert tokens.shape == (3, 5)
    torch.testing.assert_close(log_prob.exp().sum(1), torch.ones(3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_broken_rows_are_nan_and_leave_the_others_alone(bad):
    hidden, lm_head = torch.randn(3, 4), torch.randn(128, 4)
    sound = top_candidates(hidden, lm_head, (100, 100), 4)
    hidden[1, 2] = bad
    log_prob, tokens = top_candidates(hidden, lm_head, (100, 100), 4)
    assert log_prob[1].isnan().all()
    torch.testing.assert_close(log_prob[[0, 2]], sound[0][[0, 2]])
    assert torch.equal(tokens[[0, 2]], sound[1][[0, 2]])


def test_large_logits_do_not_overflow():
    hidden, lm_head = torch.full((2, 1), 1.0), torch.zeros(128, 1)
    hidden[1] = -1.0
    lm_head[:100, 0] = torch.linspace(-900.0, 900.0, 100)
    log_prob, tokens = top_candidates(hidden, lm_head, (100, 100), 2)
    assert tokens[:, 0].tolist() == [99, 0]
    torch.testing.assert_close(log_prob[:, 0], torch.zeros(2), atol=1e-6, rtol=0)
