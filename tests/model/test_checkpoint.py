"""Weight files are opened without trust: damaged, hostile and foreign ones are one line."""

import argparse
import json
import os
import pickle
import struct
import zipfile

import pytest
import torch

from nllb_cli.errors import ModelError
from nllb_cli.model.checkpoint import open_checkpoint
from tests.reference import save_tensors

TENSORS = {
    "a.weight": torch.arange(12.0).view(3, 4),
    "a.bias": torch.ones(3, dtype=torch.bfloat16),
    "b.weight": torch.full((5,), 7, dtype=torch.float16),
    "c": torch.zeros(2, dtype=torch.float64),
}
LAYOUTS = ["safetensors", "bin", "sharded-safetensors", "sharded-bin"]


def refused(directory):
    """Return the one line with which a directory is refused."""
    with pytest.raises(ModelError) as error:
        open_checkpoint(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_come_back_with_shape_and_dtype(tmp_path, layout):
    save_tensors(tmp_path, TENSORS, layout)
    stored = open_checkpoint(tmp_path)
    assert set(stored) == set(TENSORS)
    for name, expected in TENSORS.items():
        assert stored[name].shape == tuple(expected.shape)
        assert stored[name].dtype == expected.dtype
        assert torch.equal(stored[name].read(), expected)


def test_safetensors_come_before_bin_and_single_before_sharded(tmp_path):
    for layout in ("sharded-bin", "bin", "sharded-safetensors", "safetensors"):
        save_tensors(tmp_path, {layout: torch.zeros(1), "x": torch.zeros(1)}, layout)
        assert layout in open_checkpoint(tmp_path)


def test_what_training_leaves_behind_is_not_touched(tmp_path):
    save_tensors(tmp_path, TENSORS, "safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert set(open_checkpoint(tmp_path)) == set(TENSORS)
    assert not (tmp_path / "exploded").exists()


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "pickle"])
def test_code_in_a_bin_file_is_not_run(tmp_path, is_zip):
    state = TENSORS | {"bomb": Bomb(tmp_path / "exploded")}
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    assert "holds more than tensors, maybe code, and is not loaded" in refused(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_the_pickle_of_old_pytorch_loads(tmp_path):
    torch.save(TENSORS, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    stored = open_checkpoint(tmp_path)
    assert all(torch.equal(stored[name].read(), TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ([torch.zeros(2)], "a pickled list, not a dict of tensors"),
        ({"model": TENSORS, "step": 5}, "a training checkpoint (fairseq or other) with 'model'"),
        ({"args": argparse.Namespace(lr=1)}, "holds more than tensors"),
        ({"a": torch.zeros(1).expand(1 << 40)}, "a is not a plain tensor"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "a is not a plain tensor"),
        ({"a": torch.zeros(2, device="meta")}, "a is not a plain tensor"),
    ],
    ids=["list", "training", "namespace", "expanded", "sparse", "meta"],
)
def test_what_is_no_dict_of_plain_tensors_is_refused(tmp_path, state, expected):
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert expected in refused(tmp_path)


def test_other_values_are_listed_for_the_caller_to_judge(tmp_path):
    torch.save({"a": torch.zeros(2, dtype=torch.int8), "b": 3}, tmp_path / "pytorch_model.bin")
    stored = open_checkpoint(tmp_path)
    assert (stored["a"].dtype, stored["b"].dtype) == ("int8", "int")


@pytest.mark.parametrize("layout", ["safetensors", "bin"])
@pytest.mark.parametrize("kept", [0, 1, 7, 100, -1])
def test_a_cut_file_is_one_line(tmp_path, layout, kept):
    save_tensors(tmp_path, TENSORS, layout)
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:kept])
    text = refused(tmp_path)
    assert text.startswith(f"{path}: ")
    assert "download it again" in text or "holds more than tensors" in text


def test_a_header_that_lies_about_sizes_is_refused(tmp_path):
    header = {"a": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}}
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert "damaged or incomplete" in refused(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + text)
    assert "damaged or incomplete" in refused(tmp_path)


def test_random_damage_never_shows_a_traceback(tmp_path):
    generator = torch.Generator().manual_seed(5)
    for layout in ("safetensors", "bin"):
        save_tensors(tmp_path, TENSORS, layout)
        path = next(tmp_path.iterdir())
        intact = path.read_bytes()
        for _ in range(60):
            damaged = bytearray(intact)
            for where in torch.randint(len(intact), (4,), generator=generator).tolist():
                damaged[where] ^= 1 << where % 8
            path.write_bytes(damaged)
            try:
                for tensor in open_checkpoint(tmp_path).values():
                    tensor.read()
            except ModelError:
                pass
        path.unlink()


def test_a_zip_that_is_no_checkpoint_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("note.txt", "hello")
    assert "damaged or incomplete" in refused(tmp_path)


def test_a_git_lfs_pointer_is_called_one(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2460295168\n"
    for name in ("pytorch_model.bin", "model.safetensors"):
        (tmp_path / name).write_text(pointer)
        assert "a git-lfs pointer, not the weights; run `git lfs pull`" in refused(tmp_path)


def test_no_weights_at_all(tmp_path):
    assert "no model.safetensors or pytorch_model.bin in it" in refused(tmp_path)
    (tmp_path / "rust_model.ot").touch()
    assert "rust-bert weights" in refused(tmp_path)


def test_a_link_to_nowhere_is_not_taken_for_no_weights(tmp_path):
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert "a link to a file that is gone" in refused(tmp_path)


def write_index(directory, weight_map):
    index = {"metadata": {"total_size": 1 << 70}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "/etc/secret.safetensors",
        "sub/secret.safetensors",
        "..\\secret.safetensors",
        "training_args.bin",
        "nul\0.safetensors",
        "",
        7,
        None,
        ["x.safetensors"],
    ],
    ids=str,
)
def test_an_index_reaches_nothing_but_weight_files_beside_it(tmp_path, name):
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    for secret in (tmp_path, directory / "sub"):
        save_tensors(secret, TENSORS, "safetensors")
        (secret / "model.safetensors").rename(secret / "secret.safetensors")
    (directory / "training_args.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    write_index(directory, {"a.weight": name})
    assert "is not the name of a weight file beside it" in refused(directory)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"], ids=str)
def test_an_index_without_a_map_is_refused(tmp_path, weight_map):
    write_index(tmp_path, weight_map)
    assert "no weight_map in it" in refused(tmp_path)


@pytest.mark.parametrize("layout", ["sharded-safetensors", "sharded-bin"])
def test_a_shard_that_is_gone_is_named(tmp_path, layout):
    save_tensors(tmp_path, TENSORS, layout)
    gone = next(tmp_path.glob("*-00002-of-*"))
    gone.unlink()
    assert f"{gone}: no such file; download the model again" in refused(tmp_path)


def test_each_tensor_of_the_index_must_be_in_its_shard(tmp_path):
    save_tensors(tmp_path, TENSORS, "sharded-safetensors")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    write_index(tmp_path, index["weight_map"] | {"d": index["weight_map"]["c"]})
    assert "d is not in it, though model.safetensors.index.json says so" in refused(tmp_path)


def test_a_matrix_repeated_in_each_shard_is_read_where_the_index_says(tmp_path):
    first, second = torch.zeros(3), torch.ones(3)
    torch.save({"tied": first, "a": first}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"tied": second, "b": first}, tmp_path / "pytorch_model-00002-of-00002.bin")
    files = {n: f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)}
    for n, expected in ((1, first), (2, second)):
        index = {"weight_map": {"a": files[1], "b": files[2], "tied": files[n]}}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        stored = open_checkpoint(tmp_path)
        assert set(stored) == {"a", "b", "tied"}
        assert torch.equal(stored["tied"].read(), expected)
