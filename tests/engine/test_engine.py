"""The engine gives transformers' tokens and scores, row by row, whatever shares the batch."""

import random

import pytest
import torch

from nllb_cli.model.weights import load_parameters
from tests.engine.parity import compare, options_of
from tests.reference import make_checkpoint

CPU = torch.device("cpu")


def make_model(path, seed, **shape):
    model = make_checkpoint(path, seed=seed, **shape)
    return model, load_parameters(path, CPU, torch.float32)


def make_rows(seed, num_rows=7, vocab_size=97, longest=20):
    rng = random.Random(seed)
    lengths = [rng.randrange(1, longest) for _ in range(num_rows)]
    return [[vocab_size - 5, *(rng.randrange(4, vocab_size) for _ in range(n)), 2] for n in lengths]


@pytest.mark.parametrize("beam_size", [1, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_equals_transformers(tmp_path, seed, beam_size):
    model, parameters = make_model(
        tmp_path,
        seed,
        is_tied=seed % 2 == 0,
        encoder_layers=1 + seed % 3,
        decoder_layers=1 + (seed + 1) % 3,
    )
    stopping = ("false", "true", "never")[seed % 3]
    options = options_of(beam_size, (-0.5, 0.0, 1.0, 2.0)[seed], stopping)
    rows = make_rows(seed)
    assert not compare(model, parameters, rows, 91, 18, options, max_batch_rows=3)
