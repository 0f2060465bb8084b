"""The layout of a model's tensors: fused projections, padded embeddings."""

import torch

from nllb_cli.model.weights import load_parameters
from tests.reference import make_checkpoint


def test_shapes_of_the_fused_and_padded_tensors(tmp_path):
    make_checkpoint(tmp_path, vocab_size=130, d_model=24, heads=2, ffn=40, decoder_layers=3)
    parameters = load_parameters(tmp_path, torch.device("cpu"), torch.float32)
    assert parameters.lm_head.shape == (256, 24)
    assert not parameters.lm_head[130:].any()
    assert parameters.cross_kv.weight.shape == (3 * 2 * 24, 24)
    assert parameters.cross_kv.bias.shape == (3 * 2 * 24,)
    for layer in (*parameters.encoder_layers, *parameters.decoder_layers):
        assert layer.qkv.weight.shape == (3 * 24, 24)
        assert layer.fc1.weight.shape == (40, 24)
        assert layer.fc2.weight.shape == (24, 40)


def test_two_models_do_not_share_notes(tmp_path):
    make_checkpoint(tmp_path, vocab_size=64)
    first, second = (load_parameters(tmp_path, torch.device("cpu"), torch.float32) for _ in "12")
    first.notes.append("only here")
    assert second.notes == []
