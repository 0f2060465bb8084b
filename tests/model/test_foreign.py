"""What is no checkpoint of ours is named."""

import pytest

from nllb_cli.errors import ModelError
from nllb_cli.model.config import read_config
from nllb_cli.model.foreign import is_lfs_pointer, refusal


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.bin", "shared_vocabulary.json", "config.json"], "a CTranslate2 model"),
        (["model.bin", "shared_vocabulary.txt"], "a CTranslate2 model"),
        (["adapter_config.json", "adapter_model.safetensors"], "a PEFT adapter, not a whole model"),
        (["nllb.Q4.gguf"], "a GGUF"),
        (["encoder_model.onnx"], "an ONNX model"),
        (["onnx/decoder.onnx"], "an ONNX model"),
        (["tf_model.h5"], "TensorFlow weights"),
        (["flax_model.msgpack"], "Flax weights"),
        (["rust_model.ot"], "rust-bert weights"),
        (["checkpoint_best.pt"], "a fairseq or other PyTorch training checkpoint"),
        (["dict.eng_Latn.txt"], "a fairseq model"),
        (["refs/main", "snapshots/0123/config.json"], "a folder of the hub's cache"),
        (["checkpoint-500/config.json"], "give one of its checkpoint-N folders"),
        ([], "no config.json in it"),
        (["README.md"], "no config.json in it"),
    ],
    ids=str,
)
def test_a_directory_is_named(tmp_path, files, expected):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"add_source_bos": false}' if name == "config.json" else "")
    with pytest.raises(ModelError) as error:
        read_config(tmp_path)
    text = str(error.value)
    assert expected in text
    assert text.startswith(f"{tmp_path}: ")
    assert "; --model takes an NLLB-200 (dense) or M2M-100 checkpoint" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.safetensors", "a single weight file: give its directory"),
        ("pytorch_model.bin", "a single weight file: give its directory"),
        ("nllb.gguf", "a GGUF"),
        ("checkpoint.pt", "a fairseq or other"),
        ("corpus.txt", "a file, not a directory"),
    ],
)
def test_a_file_is_named(tmp_path, name, expected):
    path = tmp_path / name
    path.write_text("")
    with pytest.raises(ModelError, match=expected):
        read_config(path)


def test_a_path_that_is_not_there(tmp_path):
    assert "no such directory" in str(refusal(tmp_path / "gone", "?"))


def test_an_lfs_pointer_is_known_by_its_first_line(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert is_lfs_pointer(path)
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert not is_lfs_pointer(path)
    path.write_bytes(b"")
    assert not is_lfs_pointer(path)
