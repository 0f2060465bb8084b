"""One beam step against an enumeration, a plain program a sentence, and cases by hand."""

import itertools
import math
import random

import pytest
import torch

from nllb_cli.engine.beam import (
    BeamState,
    Candidates,
    SearchRule,
    beam_step,
    best_hypotheses,
    initial_state,
    join_segments,
    select_segments,
    with_room,
)

EOS, LANG = 2, 4


class TableModel:
    """Log-probabilities that are a random function of the whole prefix."""

    def __init__(self, seed, vocab_size, eos_bonus=0.0):
        self.seed, self.vocab_size, self.eos_bonus = seed, vocab_size, eos_bonus
        self.known = {}

    def __call__(self, prefix):
        if prefix not in self.known:
            rng = random.Random(f"{self.seed} {prefix}")
            logits = torch.tensor([rng.gauss(0, 2) for _ in range(self.vocab_size)])
            logits[EOS] += self.eos_bonus
            self.known[prefix] = logits.log_softmax(0)
        return self.known[prefix]


def search(model, beam_size, rule, limits):
    """Return the final state of one search a limit, run together, and the number of steps."""
    limits = torch.tensor(limits)
    state = initial_state(torch.full_like(limits, LANG), limits, beam_size, 4)
    steps = 0
    while state.is_open.any():
        state = with_room(state, int(state.length.max()) + 1)
        rows = [
            [model(tuple(beam[:length])) for beam in beams]
            for beams, length in zip(state.tokens.tolist(), state.length.tolist(), strict=True)
        ]
        log_prob, token = torch.stack([torch.stack(row) for row in rows]).sort(
            dim=2, descending=True, stable=True
        )
        best = min(2 * beam_size, model.vocab_size)
        state, _ = beam_step(state, Candidates(log_prob[..., :best], token[..., :best]), rule)
        steps += 1
    return state, steps


def log_prob_of(model, tokens):
    return sum(float(model(tuple(tokens[:i]))[tokens[i]]) for i in range(1, len(tokens)))


@pytest.mark.parametrize("length_penalty", [0.0, -0.5, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_wide_beam_finds_the_best_of_all_sequences(seed, length_penalty):
    model = TableModel(seed, 5)
    limit = 4
    pieces = [t for t in range(5) if t != EOS]
    ended = [
        (LANG, *middle, EOS)
        for n in range(limit - 1)
        for middle in itertools.product(pieces, repeat=n)
    ]
    cut = [(LANG, *middle) for middle in itertools.product(pieces, repeat=limit - 1)]
    best = max(ended + cut, key=lambda s: log_prob_of(model, s) / len(s) ** length_penalty)
    # With "never" and a beam that drops nothing, the search is exact.
    rule = SearchRule(EOS, length_penalty, "never")
    state, _ = search(model, 40, rule, [limit])
    (found,) = best_hypotheses(state, EOS)
    assert (LANG, *found.tokens) == tuple(t for t in best if t != EOS)
    assert found.finish == ("eos" if best[-1] == EOS else "length")
    assert found.score == pytest.approx(
        log_prob_of(model, best) / len(best) ** length_penalty, abs=1e-5
    )


def plain_search(model, K, rule, limit):
    """Return hypotheses (score, tokens), best first, and the steps: lists and floats only."""
    running, done, is_open, steps = [(0.0, (LANG,))], [], limit > 1, 0
    if limit <= 1:
        return [(0.0, (LANG,))], 0
    while is_open:
        steps += 1
        found = [
            (score + float(p), (*tokens, t))
            for score, tokens in running
            for t, p in enumerate(model(tokens))
        ]
        found = sorted(found, key=lambda c: -c[0])[: 2 * K]
        n = len(found[0][1])
        ends = [tokens[-1] == EOS or n >= limit for _, tokens in found]
        done += [
            (s / n**rule.length_penalty, t) for s, t in found[:K] if t[-1] == EOS or n >= limit
        ]
        done = sorted(done, key=lambda c: -c[0])[:K]
        running = [c for c, end in zip(found, ends, strict=True) if not end][:K]
        if not running or (rule.early_stopping == "true" and len(done) == K):
            break
        is_far = rule.early_stopping == "never" and rule.length_penalty > 0
        best = running[0][0] / (limit if is_far else n) ** rule.length_penalty
        is_open = len(done) < K or best > done[-1][0]
    return done, steps


@pytest.mark.parametrize("early_stopping", ["false", "true", "never"])
@pytest.mark.parametrize("beam_size", [2, 3, 4, 5])
def test_equals_a_plain_program(beam_size, early_stopping):
    for seed, length_penalty in enumerate((-0.5, 0.0, 0.6, 1.0, 2.0)):
        model = TableModel(seed, 12, eos_bonus=seed % 3)
        rule = SearchRule(EOS, length_penalty, early_stopping)
        limits = [1, 2, 3, 7, 19]
        state, _ = search(model, beam_size, rule, limits)
        for row, limit in enumerate(limits):
            expected, _ = plain_search(model, beam_size, rule, limit)
            for k, (score, tokens) in enumerate(expected):
                length = int(state.final_length[row, k])
                assert tuple(state.final_tokens[row, k, :length].tolist()) == tokens
                assert float(state.final_score[row, k]) == pytest.approx(score, abs=1e-5)
            assert (state.final_score[row, len(expected) :] == -math.inf).all()


def test_a_search_takes_no_more_steps_than_it_needs():
    # With early_stopping "false" a short sentence must not run to its limit.
    for seed in range(5):
        model = TableModel(seed, 12, eos_bonus=2.0)
        rule = SearchRule(EOS, 1.0, "false")
        _, steps = search(model, 4, rule, [200])
        expected, expected_steps = plain_search(model, 4, rule, 200)
        assert steps == expected_steps < 40
        assert len(expected[0][1]) <= steps + 1


def one_step(log_prob, token, beam_log_prob, **changes):
    """Return the state after one step of one segment whose beams have these log-probabilities."""
    K = len(beam_log_prob)
    state = initial_state(torch.tensor([LANG]), torch.tensor([9]), K, 8)
    state = BeamState(
        **{name: getattr(state, name) for name in state.__slots__}
        | {"log_prob": torch.tensor([beam_log_prob])}
        | changes
    )
    candidates = Candidates(torch.tensor([log_prob]), torch.tensor([token]))
    return beam_step(state, candidates, SearchRule(EOS, 1.0, "false"))


def test_equal_candidates_go_by_beam_then_token():
    state, parents = one_step(
        [[-1.0, -1.0, -2.0, -3.0]] * 2, [[5, 6, 7, 8], [3, 9, 7, 8]], [0.0, 0.0]
    )
    assert parents.tolist() == [[0, 0]]
    assert state.tokens[0, :, 1].tolist() == [5, 6]


def test_beams_may_swap():
    state, parents = one_step(
        [[-9.0, -9.5, -9.6, -9.7], [-0.1, -8.0, -8.5, -9.0]],
        [[5, 6, 7, 8], [6, 5, 7, 8]],
        [0.0, -0.5],
    )
    assert parents.tolist() == [[1, 1]]
    assert state.last_tokens.tolist() == [[6, 5]]


def test_an_end_behind_the_first_k_is_dropped():
    state, _ = one_step(
        [[-1.0, -2.0, -3.0, -4.0], [-1.0, -9.0, -9.0, -9.0]],
        [[5, 6, EOS, 7], [5, 6, 7, 8]],
        [0.0, -0.5],
    )
    # Order: beam 0 token 5, beam 1 token 5, beam 0 token 6, beam 0 </s>: only two may end.
    assert (state.final_score == -math.inf).all()
    assert state.is_open.all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_row_ends_and_the_others_do_not(bad):
    limits = torch.tensor([9, 9])
    state = initial_state(torch.tensor([LANG, LANG]), limits, 2, 8)
    log_prob = torch.full((2, 2, 4), -1.0)
    log_prob[1, 0, 0] = bad
    token = torch.tensor([5, 6, 7, 8]).expand(2, 2, 4)
    state, _ = beam_step(state, Candidates(log_prob, token), SearchRule(EOS, 1.0, "false"))
    assert state.is_open.tolist() == [True, False]
    assert state.is_invalid.tolist() == [False, True]
    found = best_hypotheses(state, EOS)[1]
    assert (found.tokens, found.finish) == ([], "invalid")
    assert math.isnan(found.score)


def test_beams_that_do_not_exist_may_be_broken():
    state, _ = one_step([[-1.0, -2.0, -3.0, -4.0], [math.nan] * 4], [[5, 6, 7, 8]] * 2, [0.0, -1e9])
    assert state.is_open.all()
    assert not state.is_invalid.any()
    assert state.last_tokens.tolist() == [[5, 6]]


def test_nothing_changes_where_a_search_is_over():
    model = TableModel(1, 12, eos_bonus=3.0)
    rule = SearchRule(EOS, 1.0, "false")
    alone, _ = search(model, 3, rule, [3])
    together, _ = search(model, 3, rule, [3, 30, 3])
    (expected,) = best_hypotheses(alone, EOS)
    found = best_hypotheses(together, EOS)
    assert found[0] == found[2] == expected


def test_greedy_takes_the_likeliest_token_to_the_first_end():
    for seed in range(5):
        model = TableModel(seed, 12, eos_bonus=1.0)
        tokens = [LANG]
        while len(tokens) < 30 and tokens[-1] != EOS:
            tokens.append(int(model(tuple(tokens)).argmax()))
        from nllb_cli.options import DecodeOptions

        rule = SearchRule.of(DecodeOptions(1, 1.0, "never"), EOS)
        state, steps = search(model, 1, rule, [30])
        (found,) = best_hypotheses(state, EOS)
        assert [LANG, *found.tokens] == [t for t in tokens if t != EOS]
        assert steps == len(tokens) - 1
        expected = log_prob_of(model, tokens) / len(tokens)
        assert found.score == pytest.approx(expected, abs=1e-5)


def test_selecting_and_joining_keep_each_search():
    model = TableModel(3, 12)
    state, _ = search(model, 3, SearchRule(EOS, 0.0, "never"), [2, 5, 9])
    whole = join_segments(
        select_segments(state, torch.tensor([0])), select_segments(state, torch.tensor([1, 2]))
    )
    for name in state.__slots__:
        assert torch.equal(getattr(whole, name), getattr(state, name))
