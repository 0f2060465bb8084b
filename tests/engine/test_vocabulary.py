"""The best next tokens, exact on a CPU and found in eight bits on a GPU."""

import pytest
import torch

from nllb_cli.engine.vocabulary import Vocabulary
from nllb_cli.kernels.lm_head import num_tiles


def scratch(R, V_padded, dtype, device):
    count = num_tiles(V_padded)
    relative = torch.empty(R, V_padded, dtype=dtype, device=device)
    return relative, *(torch.empty(R, count, device=device) for _ in range(2))


def draw(R, E, V_padded, vocab_size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(V_padded, E, generator=generator) * 0.2
    weight[vocab_size:] = 0
    return torch.randn(R, E, generator=generator), weight


def test_exact_scores_leave_out_ids_without_a_token():
    hidden, weight = draw(5, 32, 384, 300)
    vocabulary = Vocabulary(weight, 300, 290)
    values, ids, lse = vocabulary.best(hidden, scratch(5, 384, torch.float32, "cpu"), 6)
    logits = hidden @ weight[:300].T
    best, order = logits[:, :290].sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(values, best[:, :6])
    assert ids.tolist() == order[:, :6].tolist()
    torch.testing.assert_close(lse, logits.logsumexp(1))


@pytest.mark.gpu
def test_eight_bits_find_the_exact_best():
    hidden, weight = (t.to("cuda", torch.bfloat16) for t in draw(200, 1024, 4096, 4000))
    vocabulary = Vocabulary(weight, 4000, 4000)
    values, ids, lse = vocabulary.best(hidden, scratch(200, 4096, torch.float16, "cuda"), 8)
    logits = hidden.float() @ weight[:4000].float().T
    best, order = logits.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(values[:, 0], best[:, 0], rtol=1e-3, atol=1e-3)
    assert (ids[:, 0] == order[:, 0]).float().mean() > 0.99
    # logits of this width have a spread of 6.4, so coarse ones err by 0.3: what remains of that in
    # the sum over tokens that are no candidates
    assert (lse - logits.logsumexp(1)).abs().max() < 0.05
