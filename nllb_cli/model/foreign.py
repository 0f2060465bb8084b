"""Say what a path is when it is not a checkpoint that can be loaded."""

from pathlib import Path

from nllb_cli.errors import ModelError

WANTED = "an NLLB-200 (dense) or M2M-100 checkpoint in Hugging Face format"
LFS_MARK = b"version https://git-lfs"
# What a file name tells about its directory, the surest first.
SIGNS = (
    ("shared_vocabulary.*", "a CTranslate2 model, converted and maybe quantised"),
    ("adapter_config.json", "a PEFT adapter, not a whole model: give its base model"),
    ("*.gguf", "a GGUF (llama.cpp) model"),
    ("*.onnx", "an ONNX model"),
    ("onnx/*.onnx", "an ONNX model"),
    ("tf_model*.h5", "TensorFlow weights"),
    ("flax_model*.msgpack", "Flax weights"),
    ("rust_model.ot", "rust-bert weights"),
    ("dict.*.txt", "a fairseq model"),
    ("*.pt", "a fairseq or other PyTorch training checkpoint"),
    ("snapshots/*", "a folder of the hub's cache: give the hub id, or one folder in snapshots/"),
    ("checkpoint-*/config.json", "a training run: give one of its checkpoint-N folders"),
)
FILE_SIGNS = {
    ".gguf": "a GGUF (llama.cpp) model",
    ".onnx": "an ONNX model",
    ".pt": "a fairseq or other PyTorch training checkpoint",
    ".safetensors": "a single weight file: give its directory",
    ".bin": "a single weight file: give its directory",
}


def refusal(path: Path, otherwise: str) -> ModelError:
    """Return the error for a path without a usable checkpoint, `otherwise` if nothing is known."""
    return ModelError(f"{path}: {_kind(path) or otherwise}; --model takes {WANTED}")


def _kind(path: Path) -> str | None:
    if not path.exists():
        return "no such directory"
    if not path.is_dir():
        return FILE_SIGNS.get(path.suffix, "a file, not a directory")
    return next((kind for sign, kind in SIGNS if any(path.glob(sign))), None)


def is_lfs_pointer(path: Path) -> bool:
    """Tell whether a file is git-lfs's short stand-in for a file that was not downloaded."""
    with path.open("rb") as file:
        return file.read(len(LFS_MARK)) == LFS_MARK
