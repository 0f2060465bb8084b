"""Find and open the weight files of a directory; nothing in them is run or trusted for sizes."""

import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nllb_cli.errors import ModelError
from nllb_cli.model.config import read_json
from nllb_cli.model.foreign import is_lfs_pointer, refusal

# In the order of transformers: what stands first is read, the rest is left alone.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a weight file: what it claims to be, checked against the file's size."""

    shape: tuple[int, ...]
    dtype: torch.dtype | str  # a name if it is not a float that a model computes with
    read: Callable[[], Tensor]
    """Return the tensor, memory-mapped: nothing is read before its values are used."""


def open_checkpoint(directory: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a directory's weight files by their stored names."""
    for name in WEIGHT_FILES:
        path = directory / name
        if path.is_file():
            return _open_sharded(path) if name.endswith(".json") else dict(_open_file(path))
        if path.is_symlink():
            raise ModelError(f"{path}: a link to a file that is gone; download the model again")
    raise refusal(directory, "no model.safetensors or pytorch_model.bin in it")


def _open_sharded(index: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index}: no weight_map in it; download the file again")
    suffix = index.name.removesuffix(".index.json")[-4:]  # ".bin", or the end of ".safetensors"
    tensors = {}
    for shard in sorted({_shard_name(index, value, suffix) for value in weight_map.values()}):
        for name, tensor in _open_file(index.with_name(shard)):
            # a tied matrix may stand in each shard: the one that the index names counts
            if weight_map.get(name, shard) == shard:
                tensors[name] = tensor
    for name, shard in weight_map.items():
        if name not in tensors:
            raise ModelError(
                f"{index.with_name(shard)}: {name} is not in it, though {index.name} says so; "
                "download the model again"
            )
    return tensors


def _shard_name(index: Path, value: Any, suffix: str) -> str:
    """Return a shard's file name; a path that leaves the directory is refused."""
    is_name = isinstance(value, str) and not set(value) & set("/\\\0") and value.endswith(suffix)
    if not is_name:
        raise ModelError(f"{index}: {str(value)[:80]!r} is not the name of a weight file beside it")
    return str(value)


def _open_file(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    if not path.is_file():
        raise ModelError(f"{path}: no such file; download the model again")
    try:
        if is_lfs_pointer(path):
            raise ModelError(
                f"{path}: a git-lfs pointer, not the weights; run `git lfs pull` in the directory"
            )
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    return _open_safetensors(path) if path.suffix == ".safetensors" else _open_bin(path)


def _open_safetensors(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    try:
        # reads the header and checks that its shapes cover the file exactly
        file: Any = safe_open(path, framework="pt", device="cpu")  # its methods are not typed
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    for name in file.keys():  # noqa: SIM118 - not a mapping
        header = file.get_slice(name)
        dtype = header.get_dtype()
        yield (
            name,
            StoredTensor(
                shape=tuple(header.get_shape()),
                dtype=FLOATS.get(dtype, dtype),
                read=partial(file.get_tensor, name),
            ),
        )


def _open_bin(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    try:
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path}: holds more than tensors, maybe code, and is not loaded; convert it to "
            "safetensors where you trust it"
        ) from None
    except Exception as error:  # what a hostile or cut pickle raises is anyone's guess
        raise _damaged(path, error) from None
    if not isinstance(state, dict):
        raise ModelError(f"{path}: a pickled {type(state).__name__}, not a dict of tensors")
    for name, value in state.items():
        if isinstance(value, dict):
            raise ModelError(
                f"{path}: a training checkpoint (fairseq or other) with {str(name)[:40]!r} in it; "
                "convert it to Hugging Face format"
            )
        yield str(name), _stored_value(path, str(name), value)


def _stored_value(path: Path, name: str, value: Any) -> StoredTensor:
    if not isinstance(value, Tensor):
        return StoredTensor((), type(value).__name__, lambda: torch.empty(0))
    is_plain = value.layout is torch.strided and value.device.type == "cpu"
    # an expanded view would claim any size: what a tensor needs must lie in the file
    if not is_plain or value.nbytes > value.untyped_storage().nbytes():
        raise ModelError(f"{path}: {name[:80]} is not a plain tensor; it is not loaded")
    is_float = value.dtype in FLOATS.values()
    dtype = value.dtype if is_float else str(value.dtype).removeprefix("torch.")
    return StoredTensor(tuple(value.shape), dtype, value.detach)


def _damaged(path: Path, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())[:120]
    return ModelError(f"{path}: damaged or incomplete ({reason}); download it again")
