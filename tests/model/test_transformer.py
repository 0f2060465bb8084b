"""The forward maths equal transformers', at any length, padding, depth and precision."""

import pytest
import torch

from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.config import ModelConfig
from nllb_cli.model.transformer import PositionTable, Transformer
from nllb_cli.model.weights import load_parameters
from tests.reference import make_checkpoint

CPU = torch.device("cpu")
LENGTHS = [9, 1, 5, 9]


def make_models(path, dtype=torch.float32, **shape):
    reference = make_checkpoint(path, **shape)
    return reference, Transformer(load_parameters(path, CPU, dtype))


def random_tokens(lengths, seed=0, vocab_size=97):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, vocab_size, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return tokens.where(mask, 1), mask


@pytest.mark.parametrize("width", [7, 8, 33, 1024])
def test_positions_equal_transformers(width):
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    config = ModelConfig(128, width, 1, 1, 1, 1, 4, 4, max_positions=1024)
    table = PositionTable(config, torch.zeros(1)).rows(1500)
    expected = M2M100SinusoidalPositionalEmbedding(1600, width, 1).weights
    assert torch.equal(table[1:1501], expected[2:1502])
    assert not table[0].any()


@pytest.mark.parametrize("num_positions", [1023, 1024, 1025, 2049, 5000])
def test_the_position_table_grows(num_positions):
    positions = PositionTable(ModelConfig(128, 8, 1, 1, 1, 1, 4, 4), torch.zeros(1))
    before = positions.rows(3).clone()
    assert positions.rows(num_positions).shape[0] > num_positions
    assert torch.equal(positions.rows(3)[: len(before)], before)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("layers", [(1, 3), (3, 1)])
def test_encoder_equals_transformers(tmp_path, is_tied, layers):
    reference, ours = make_models(
        tmp_path, is_tied=is_tied, encoder_layers=layers[0], decoder_layers=layers[1]
    )
    tokens, mask = random_tokens(LENGTHS)
    with torch.inference_mode():
        expected = reference.model.encoder(tokens, attention_mask=mask.long()).last_hidden_state
        output = ours.encode(tokens, mask.sum(1))
    torch.testing.assert_close(output[mask], expected[mask], atol=2e-5, rtol=1e-5)
    assert output.isfinite().all()


def test_a_source_longer_than_the_table(tmp_path):
    reference, ours = make_models(tmp_path, max_position_embeddings=16)
    tokens, mask = random_tokens([40, 17])
    with torch.inference_mode():
        expected = reference.model.encoder(tokens, attention_mask=mask.long()).last_hidden_state
        output = ours.encode(tokens, mask.sum(1))
    torch.testing.assert_close(output[mask], expected[mask], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("scale_embedding", [True, False])
@pytest.mark.parametrize("layers", [(1, 3), (3, 1)])
def test_decode_steps_equal_transformers(tmp_path, layers, scale_embedding):
    """Two beams a segment, each with its own prefix, both past the table's first size."""
    reference, ours = make_models(
        tmp_path,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        scale_embedding=scale_embedding,
        max_position_embeddings=16,
    )
    B, K, T = len(LENGTHS), 2, 24
    tokens, mask = random_tokens(LENGTHS)
    prefixes = random_tokens([T] * (B * K), seed=1)[0]
    with torch.inference_mode():
        output = ours.encode(tokens, mask.sum(1))
        cache = DecoderCache(ours.config, K, output)
        cache.set_source(ours.cross_keys_values(output), mask.sum(1))
        steps = prefixes.view(B, K, T).unbind(2)
        hidden = torch.stack([ours.decode(step, t + 1, cache) for t, step in enumerate(steps)], 2)
        logits = hidden @ ours.parameters.lm_head[:97].T
        expected = reference(
            input_ids=tokens.repeat_interleave(K, 0),
            attention_mask=mask.repeat_interleave(K, 0).long(),
            decoder_input_ids=prefixes,
        ).logits.view(B, K, T, -1)
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-5)


def test_half_precision_encoder_is_clamped(tmp_path):
    _, ours = make_models(tmp_path, dtype=torch.float16)
    for layer in ours.parameters.encoder_layers:
        layer.fc2.bias.fill_(60000.0)
    tokens, mask = random_tokens(LENGTHS)
    with torch.inference_mode():
        assert ours.encode(tokens, mask.sum(1)).isfinite().all()


def test_bfloat16_stays_near_fp32(tmp_path):
    _, full = make_models(tmp_path)
    half = Transformer(load_parameters(tmp_path, CPU, torch.bfloat16))
    tokens, mask = random_tokens(LENGTHS)
    with torch.inference_mode():
        expected, output = (model.encode(tokens, mask.sum(1)) for model in (full, half))
    assert output.dtype == torch.bfloat16
    assert (output - expected)[mask].abs().mean() < 0.03 * expected[mask].abs().mean()
