"""config.json is read, its nulls are absent, and what is not M2M-100 is refused in one line."""

import json

import pytest

from nllb_cli.errors import ModelError
from nllb_cli.model.config import ModelConfig, read_config, read_json

FIELDS = {
    "model_type": "m2m_100",
    "vocab_size": 300,
    "d_model": 64,
    "encoder_layers": 12,
    "decoder_layers": 3,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 80,
}


@pytest.fixture
def read(tmp_path):
    def read(generation=None, **changes):
        fields = {k: v for k, v in (FIELDS | changes).items() if v is not ...}
        (tmp_path / "config.json").write_text(json.dumps(fields))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return read_config(tmp_path)

    return read


def test_shape_and_defaults(read):
    config = read()
    assert config == ModelConfig(
        vocab_size=300,
        d_model=64,
        encoder_layers=12,
        decoder_layers=3,
        encoder_heads=8,
        decoder_heads=4,
        encoder_ffn=96,
        decoder_ffn=80,
    )
    assert (config.head_size, config.padded_vocab_size) == (16, 384)
    assert (config.pad_id, config.eos_id, config.decoder_start_id) == (1, 2, 2)


def test_fields_that_are_given_count(read):
    config = read(
        scale_embedding=False,
        tie_word_embeddings=False,
        max_position_embeddings=77,
        bos_token_id=5,
        pad_token_id=6,
        eos_token_id=7,
        decoder_start_token_id=8,
    )
    assert not config.scale_embedding
    assert not config.is_tied
    assert config.max_positions == 77
    assert (config.bos_id, config.pad_id, config.eos_id, config.decoder_start_id) == (5, 6, 7, 8)


def test_null_means_absent(read):
    nulls = dict.fromkeys(
        [
            "tie_word_embeddings",
            "scale_embedding",
            "max_position_embeddings",
            "eos_token_id",
            "decoder_start_token_id",
            "quantization_config",
            "activation_function",
            "early_stopping",
            "max_length",
            "num_beams",
        ]
    )
    assert read(**nulls) == read()


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_the_saved_dtype_is_no_part_of_the_shape(read, name):
    assert read(**{name: "float16"}) == read()


def test_the_decoder_start_follows_the_generation_config(read):
    assert read(decoder_start_token_id=9).decoder_start_id == 9
    assert read({}, decoder_start_token_id=9).decoder_start_id == 9
    assert read({"decoder_start_token_id": None}, eos_token_id=4).decoder_start_id == 4
    assert read({"decoder_start_token_id": 11}, decoder_start_token_id=9).decoder_start_id == 11
    assert read({"decoder_start_token_id": [12]}).decoder_start_id == 12


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nllb-moe", "NLLB-MoE, a mixture of experts"),
        ("marian", "a Marian"),
        ("mbart", "an mBART model"),
        ("seamless_m4t_v2", "a SeamlessM4T v2 model"),
        ("t5", "a T5 model"),
        ("llama", "a model of type 'llama'"),
        (["x" * 5000], "a model of type \"['xxx"),
        (..., "its config.json has no model_type"),
    ],
)
def test_another_architecture_is_named(read, kind, expected):
    with pytest.raises(ModelError) as error:
        read(model_type=kind)
    text = str(error.value)
    assert expected in text
    assert "--model takes an NLLB-200 (dense) or M2M-100 checkpoint" in text
    assert len(text) < 400
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, r"quantised .*bitsandbytes"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised weights \(gptq\)"),
        ({"quantization_config": 8}, "quantised weights"),
        ({"activation_function": "gelu"}, "activation_function 'gelu' is not supported"),
        ({"encoder_attention_heads": 7}, "d_model 64 does not divide by encoder_attention_heads 7"),
        ({"decoder_attention_heads": 7}, "d_model 64 does not divide by decoder_attention_heads 7"),
        ({"d_model": ...}, "d_model is missing"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"d_model": 10**12}, "d_model 1000000000000 is not a number from 1 to 65536"),
        ({"encoder_layers": 10**9}, "encoder_layers 1000000000 is not a number"),
        ({"decoder_layers": 0}, "decoder_layers 0 is not"),
        ({"vocab_size": -1}, "vocab_size -1 is not"),
        ({"vocab_size": 300.0}, r"vocab_size 300\.0 is not"),
        ({"vocab_size": "300"}, "vocab_size 300 is not"),
        ({"decoder_layers": True}, "decoder_layers True is not"),
        ({"max_position_embeddings": 10**18}, "max_position_embeddings"),
        ({"scale_embedding": "no"}, "scale_embedding no is neither true nor false"),
        ({"eos_token_id": 300}, "eos_token_id 300 is not one token id below vocab_size 300"),
        ({"eos_token_id": [2, 3]}, r"eos_token_id \[2, 3\] is not one token id"),
        ({"pad_token_id": -1}, "pad_token_id -1"),
        ({"bos_token_id": False}, "bos_token_id False"),
        ({"generation": {"decoder_start_token_id": "x"}}, "generation_config.json: decoder_start"),
        ({"generation": {"decoder_start_token_id": 300}}, "decoder_start_token_id 300 is not one"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(read, changes, expected):
    with pytest.raises(ModelError, match=expected) as error:
        read(**changes)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff\xfe\xfa", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[1]", "not a JSON object"),
    ],
    ids=["cut", "empty", "not UTF-8", "deep", "long number", "list"],
)
def test_a_damaged_file_is_one_line(tmp_path, content, expected):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"config\.json: {expected}"):
        read_config(tmp_path)


def test_a_file_of_any_size_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: takes no room
    with pytest.raises(ModelError, match="over 64 MB"):
        read_json(path)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(FIELDS).encode())
    assert read_config(tmp_path).d_model == 64
