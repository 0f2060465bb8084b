"""The cache keeps each beam's own past, wherever its slot moves."""

import torch

from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.config import ModelConfig

CONFIG = ModelConfig(128, 8, 1, 2, 2, 2, 16, 16)


def filled_cache(num_slots=3, beam_size=2, width=5):
    cache = DecoderCache(CONFIG, beam_size, torch.zeros(1))
    L, H, D = CONFIG.decoder_layers, CONFIG.decoder_heads, CONFIG.head_size
    cache.set_source(torch.randn(L, 2, num_slots, H, width, D), torch.tensor([5, 2, 3]))
    cache.reserve(num_slots, 8, width)
    cache.self_kv.normal_()
    cache.lengths[:] = torch.tensor([4, 7, 2])
    return cache


def test_growing_keeps_what_is_there_and_adds_zeros():
    cache = filled_cache()
    self_kv, cross_kv, rows = cache.self_kv.clone(), cache.cross_kv.clone(), cache.beam_rows.clone()
    T = self_kv.shape[4]
    cache.reserve(3, T + 1, 9)
    assert torch.equal(cache.self_kv[:, :, :, :, :T], self_kv)
    assert cache.self_kv.shape[4] > T
    assert not cache.self_kv[:, :, :, :, T:].any()
    assert torch.equal(cache.cross_kv[:, :, :, :, :5], cross_kv)
    assert cache.cross_kv.shape[4] == 9
    assert torch.equal(cache.beam_rows[:, :, :T], rows)
    assert cache.beam_rows.shape[2] == cache.self_kv.shape[4]
    assert cache.num_slots == 3


def test_slots_give_way_to_wider_ones():
    cache = filled_cache()
    self_kv = cache.self_kv.clone()
    cache.reserve(2, 3, 40)
    assert cache.num_slots == 2
    assert torch.equal(cache.self_kv, self_kv[:, :, :2])
    assert cache.lengths.tolist() == [4, 7]
    cache.reserve(4, 3, 40)
    assert cache.num_slots == 4
    assert torch.equal(cache.self_kv[:, :, :2], self_kv[:, :, :2])
    assert not cache.self_kv[:, :, 2:].any()


def test_beams_follow_their_parents():
    cache = filled_cache(beam_size=3)
    cache.beam_rows[0, :, :3] = torch.tensor([[0, 0, 0], [0, 1, 1], [0, 1, 2]])
    cache.advance(torch.tensor([[2, 0, 2]]))
    assert cache.beam_rows[0, :, :3].tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 2]]


def test_moving_takes_everything_along():
    cache = filled_cache()
    self_kv, cross_kv = cache.self_kv[:, :, 2].clone(), cache.cross_kv[:, :, 2].clone()
    cache.move([2], [0], 2)
    assert torch.equal(cache.self_kv[:, :, 0, :, :2], self_kv[:, :, :, :2])
    assert torch.equal(cache.cross_kv[:, :, 0], cross_kv)
    assert cache.lengths.tolist() == [2, 7, 2]
    assert cache.source_lengths.tolist() == [3, 2, 3]


def test_a_prompt_lies_in_row_0_and_is_seen_by_all_beams():
    cache = DecoderCache(CONFIG, 4, torch.zeros(1))
    cache.reserve(5, 2, 5)
    cache.beam_rows.fill_(3)
    L, H, D = CONFIG.decoder_layers, CONFIG.decoder_heads, CONFIG.head_size
    cross_kv = torch.randn(L, 2, 3, H, 5, D)
    cache.set_source(cross_kv, torch.tensor([5, 2, 3]), first=1)
    step = cache.prompt_step(1, torch.tensor([[2, 9]] * 3))
    assert torch.equal(cache.cross_kv[:, :, 1:4], cross_kv)
    assert cache.lengths.tolist() == [0, 2, 2, 2, 0]
    seen = (step.self_mask == 0).view(2, 2, 4)  # [Q, T, K]
    assert seen.nonzero().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert (step.cross_mask == 0).sum(-1).flatten().tolist() == [5, 2, 3]
    after = cache.beam_step(torch.full((4, 4), 7), 3)
    seen = (after.self_mask[1, 0] == 0).view(4, 3, 4)  # [K, T, K]
    assert seen[2].nonzero().tolist() == [[0, 0], [1, 0], [2, 2]]


def test_scrubbed_slots_hold_no_nan():
    cache = filled_cache()
    cache.self_kv[:, :, 1] = float("nan")
    cache.cross_kv[:, :, 1] = float("inf")
    cache.scrub([1])
    assert cache.self_kv.isfinite().all()
    assert cache.cross_kv.isfinite().all()
