"""Loaded parameters equal the transformers state dict, whatever form the files have."""

import pytest
import torch

from nllb_cli.model.weights import load_parameters
from tests.reference import make_checkpoint

CPU = torch.device("cpu")


def layer_tensors(parameters, name):
    """Return the state dict's tensor `name`, cut out of our parameters."""
    config = parameters.config
    E = config.d_model
    if name == "lm_head.weight":
        return parameters.lm_head[: config.vocab_size]
    _, side, *rest = name.split(".")
    if side == "shared" or rest[0] == "embed_tokens":
        table = parameters.target_embedding if side == "decoder" else parameters.source_embedding
        return table[: config.vocab_size]
    if rest[0] == "layer_norm":
        return getattr(getattr(parameters, f"{side}_norm"), rest[1])
    index, block, *tail = int(rest[1]), *rest[2:]
    layer = getattr(parameters, f"{side}_layers")[index]
    if block.endswith("layer_norm"):
        norms = {"self_attn": "self_norm", "encoder_attn": "cross_norm", "final": "ffn_norm"}
        return getattr(getattr(layer, norms[block.removesuffix("_layer_norm")]), tail[0])
    if block in ("fc1", "fc2"):
        return getattr(getattr(layer, block), tail[0])
    part, kind = tail[0].removesuffix("_proj"), tail[1]
    if block == "self_attn":
        if part == "out":
            return getattr(layer.out, kind)
        return getattr(layer.qkv, kind).split(E)["qkv".index(part)]
    if part in "kv":
        return getattr(parameters.cross_kv, kind).split(E)[2 * index + "kv".index(part)]
    return getattr({"q": layer.cross_q, "out": layer.cross_out}[part], kind)


def assert_same(parameters, model, dtype=torch.float32):
    for name, expected in model.state_dict().items():
        actual = layer_tensors(parameters, name)
        assert actual.dtype == dtype
        torch.testing.assert_close(actual, expected.to(dtype), rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("layout", ["safetensors", "bin", "sharded-safetensors", "sharded-bin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_every_form_of_weight_files(tmp_path, layout, dtype):
    model = make_checkpoint(tmp_path, layout=layout, dtype=dtype, encoder_layers=3)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert_same(parameters, model)
    assert parameters.notes == []
