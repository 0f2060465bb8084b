"""Loaded parameters equal the transformers state dict, whatever form the files have."""

import json
from itertools import combinations

import pytest
import torch
from safetensors.torch import load_file
from transformers import M2M100ForConditionalGeneration

from nllb_cli.errors import ModelError
from nllb_cli.model.hub import BUNDLED_MODEL
from nllb_cli.model.weights import HEAD, SHARED, SOURCE, TARGET, load_parameters
from tests.reference import make_checkpoint, save_tensors

CPU = torch.device("cpu")
FORMS = {
    "as it is": str,
    "no model.": lambda name: name.removeprefix("model."),
    "DataParallel": "module.{}".format,
    "compiled": "_orig_mod.{}".format,
    "compiled, DataParallel": "module._orig_mod.{}".format,
    "compiled inside": lambda name: name.replace("coder.", "coder._orig_mod.", 1),
}


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_are_rounded_once_to_the_dtype_asked_for(tmp_path, dtype):
    model = make_checkpoint(tmp_path)
    assert_same(load_parameters(tmp_path, CPU, dtype), model, dtype)


@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(4, 1), (1, 3)])
def test_encoder_and_decoder_of_different_depth(tmp_path, encoder_layers, decoder_layers):
    depths = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers}
    model = make_checkpoint(tmp_path, scale_embedding=False, **depths)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert_same(parameters, model)
    assert not parameters.config.scale_embedding


def read_state(path):
    """Return the tensors of a checkpoint and take its weight file away."""
    state = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    return state


@pytest.mark.parametrize("form", FORMS)
def test_prefixes_and_leftovers_do_no_harm(tmp_path, form):
    model = make_checkpoint(tmp_path)
    state = {FORMS[form](name): tensor for name, tensor in read_state(tmp_path).items()}
    leftovers = {
        "model.encoder.version": torch.tensor([3.0]),
        "decoder.version": torch.tensor([3]),
        "model.encoder.embed_positions.weights": torch.full((9, 32), float("nan")),
        "model.decoder.embed_positions.weights": torch.ones(1026, 32),
        "encoder.embed_positions._float_tensor": torch.zeros(1),
        "decoder.embed_positions._float_tensor": torch.zeros(1),
        "decoder.output_projection.weight": torch.ones(97, 32),
        "final_logits_bias": torch.zeros(1, 97),
    }
    save_tensors(tmp_path, state | leftovers, "safetensors")
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert_same(parameters, model)
    assert parameters.notes == []


def embeddings(parameters):
    rows = parameters.config.vocab_size
    return {
        SOURCE: parameters.source_embedding[:rows],
        TARGET: parameters.target_embedding[:rows],
        HEAD: parameters.lm_head[:rows],
    }


@pytest.mark.parametrize("name", [SOURCE, TARGET, HEAD, SHARED])
def test_the_tied_matrix_may_stand_under_any_one_name(tmp_path, name):
    model = make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    save_tensors(tmp_path, state | {name: state.pop(SHARED)}, "safetensors")
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert_same(parameters, model)
    assert parameters.lm_head is parameters.source_embedding is parameters.target_embedding


ALL = (SHARED, SOURCE, TARGET, HEAD)
PRESENT = [names for size in (2, 3, 4) for names in combinations(ALL, size)]


@pytest.mark.parametrize("present", PRESENT, ids=lambda names: "+".join(n[:9] for n in names))
def test_tied_matrices_that_differ_are_used_as_transformers_does(tmp_path, present):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    tied = state.pop(SHARED)
    for factor, name in enumerate(present, 1):
        state[name] = tied * factor
    save_tensors(tmp_path, state, "safetensors")
    expected = M2M100ForConditionalGeneration.from_pretrained(tmp_path).state_dict()
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    for name, actual in embeddings(parameters).items():
        assert torch.equal(actual, expected[name]), name
    assert len(parameters.notes) == 1
    assert "the weights have several that differ" in parameters.notes[0]


def test_one_matrix_under_all_names_takes_its_room_once(tmp_path):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    copies = {name: state[SHARED].clone() for name in ALL}
    save_tensors(tmp_path, state | copies, "safetensors")
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert parameters.lm_head is parameters.source_embedding is parameters.target_embedding
    assert parameters.notes == []


@pytest.mark.parametrize("layout", ["safetensors", "bin"])
def test_embeddings_that_are_not_tied(tmp_path, layout):
    model = make_checkpoint(tmp_path, is_tied=False, layout=layout)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    for name, actual in embeddings(parameters).items():
        assert torch.equal(actual, model.state_dict()[name])
    assert not torch.equal(parameters.lm_head, parameters.target_embedding)
    assert parameters.notes == []


def test_an_untied_head_that_is_lost_is_refused(tmp_path):
    make_checkpoint(tmp_path, is_tied=False)
    state = read_state(tmp_path)
    del state[HEAD]
    save_tensors(tmp_path, state, "safetensors")
    assert "no lm_head.weight, and config.json says that it is not" in refusal(tmp_path)


def test_untied_inputs_fall_back_to_shared_not_to_the_head(tmp_path):
    model = make_checkpoint(tmp_path, is_tied=False)
    state = read_state(tmp_path)
    del state[SOURCE], state[TARGET]
    save_tensors(tmp_path, state, "safetensors")
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    found = embeddings(parameters)
    assert torch.equal(found[SOURCE], model.state_dict()[SHARED])
    assert torch.equal(found[TARGET], model.state_dict()[SHARED])
    assert torch.equal(found[HEAD], model.state_dict()[HEAD])


def change_config(path, **fields):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))


@pytest.mark.parametrize("said", [90, 104])
def test_the_embedding_knows_its_rows_better_than_the_config(tmp_path, said):
    model = make_checkpoint(tmp_path, vocab_size=97)
    change_config(tmp_path, vocab_size=said)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert parameters.config.vocab_size == 97
    assert_same(parameters, model)
    assert parameters.notes == [
        f"{tmp_path}: config.json says vocab_size {said}, the weights have 97 rows; the weights "
        "count"
    ]


def test_a_decoder_start_other_than_eos_is_kept_and_told(tmp_path):
    make_checkpoint(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"decoder_start_token_id": 5}')
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    assert parameters.config.decoder_start_id == 5
    assert "the decoder starts with token 5 instead of </s> (2)" in parameters.notes[0]


def refusal(path, dtype=torch.float32):
    with pytest.raises(ModelError) as error:
        load_parameters(path, CPU, dtype)
    text = str(error.value)
    assert text.startswith(f"{path}")
    assert "\n" not in text
    return text


FC1 = "model.decoder.layers.1.fc1.weight"
EXPERT = "model.encoder.layers.1.ffn.experts.expert_0.fc1.weight"


@pytest.mark.parametrize(
    ("lost", "added", "expected"),
    [
        ([FC1], {}, f"{FC1} is missing from its weights"),
        ([FC1, "model.encoder.layer_norm.bias"], {}, "2 tensors (model.encoder.layer_norm.bias, …"),
        ([SHARED], {}, "no embedding (model.shared.weight) in its weights"),
        ([], {"model.extra": (3,)}, "model.extra is unknown to the model that config.json"),
        ([], {"model.decoder.layers.2.fc1.bias": (48,)}, "layers.2.fc1.bias is unknown to"),
        ([], {"lm_head.bias": (97,)}, "lm_head.bias is unknown"),
        ([], {FC1: (32, 48)}, f"{FC1} has shape [32, 48], config.json asks for [48, 32]"),
        ([], {"model.encoder.layers.0.fc1.bias": (47,)}, "has shape [47], config.json asks for"),
        ([], {SHARED: (97, 31)}, "model.shared.weight has shape [97, 31], config.json asks for"),
        ([], {SHARED: (97,)}, "model.shared.weight has shape [97]"),
        ([], {HEAD: (99, 32)}, "the embeddings differ in size (model.shared.weight [97, 32], lm"),
        ([], {SHARED: (2, 32)}, "an embedding of 2 rows is too small"),
        ([], {"model.layernorm_embedding.weight": (32,)}, "a BART or mBART model"),
        ([SHARED], {"model.encoder.embed_positions.weight": (32,)}, "a BART or mBART model"),
        ([], {"final_logits_bias": (1, 97)}, "final_logits_bias is unknown"),
        (["model.encoder.layers.1.fc1.weight"], {EXPERT: (48, 32)}, "NLLB-MoE, a mixture of exper"),
        ([], {"model.encoder.layers.0.fc1.weight.absmax": (3,)}, "quantised by bitsandbytes"),
        ([], {"model.encoder.layers.0.fc1.SCB": (3,)}, "quantised by bitsandbytes"),
        ([FC1], {FC1.replace("weight", "qweight"): (3, 2)}, "quantised (GPTQ or AWQ)"),
        ([], {"base_model.model.x.lora_A.weight": (3, 2)}, "has unmerged adapter weights"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, (list, dict)) else "",
)
def test_tensors_that_do_not_fit_are_named(tmp_path, lost, added, expected):
    make_checkpoint(tmp_path)
    state = {name: tensor for name, tensor in read_state(tmp_path).items() if name not in lost}
    state |= {name: torch.ones(shape) for name, shape in added.items()}
    save_tensors(tmp_path, state, "safetensors")
    text = refusal(tmp_path)
    assert expected in text
    assert "--model takes an NLLB-200 (dense) or M2M-100 checkpoint with float weights" in text


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("layout", ["safetensors", "bin"])
def test_weights_of_another_kind_are_refused(tmp_path, layout, dtype):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    save_tensors(tmp_path, state | {FC1: state[FC1].to(dtype)}, layout)
    assert f"{FC1} is " in (text := refusal(tmp_path))
    assert "quantised or no weight at all" in text


def test_names_that_become_one_without_their_prefix_are_refused(tmp_path):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    save_tensors(tmp_path, state | {f"module.{FC1}": state[FC1].clone()}, "safetensors")
    assert f"two tensors are called {FC1}" in refusal(tmp_path)


def test_a_size_in_the_config_is_compared_before_it_is_allocated(tmp_path):
    make_checkpoint(tmp_path)
    change_config(tmp_path, d_model=1 << 16, decoder_ffn_dim=1 << 20, vocab_size=1 << 24)
    assert "has shape" in refusal(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", [SHARED, FC1, "model.decoder.layers.0.encoder_attn.v_proj.bias"])
def test_a_weight_that_is_not_finite_is_refused(tmp_path, name, value):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    state[name].view(-1)[-1] = value
    save_tensors(tmp_path, state, "safetensors")
    assert f"{name} is damaged (NaN or infinity)" in refusal(tmp_path)


def test_a_weight_too_large_for_float16_asks_for_another_dtype(tmp_path):
    make_checkpoint(tmp_path)
    state = read_state(tmp_path)
    state[FC1][3, 3] = 70_000.0
    save_tensors(tmp_path, state, "safetensors")
    assert f"{FC1} is too large for float16; use --dtype bfloat16" in refusal(
        tmp_path, torch.float16
    )
    load_parameters(tmp_path, CPU, torch.bfloat16)


def test_the_files_may_go_once_the_model_is_loaded(tmp_path):
    model = make_checkpoint(tmp_path)
    parameters = load_parameters(tmp_path, CPU, torch.float32)
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert_same(parameters, model)


def test_the_bundled_model_loads_like_any_other():
    parameters = load_parameters(BUNDLED_MODEL, CPU, torch.float32)
    assert parameters.notes == []
    assert parameters.lm_head is parameters.source_embedding
