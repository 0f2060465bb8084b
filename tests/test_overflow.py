"""Scores that are not finite cost the row a mark and a reason, and the others nothing."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from nllb_cli import Translator, cli
from nllb_cli.engine import devices
from nllb_cli.engine.sizes import SlotPlan
from nllb_cli.engine.slot_engine import SlotEngine
from nllb_cli.errors import ModelError
from nllb_cli.model.hub import BUNDLED_MODEL

REASON = "the model's scores were not finite; --dtype float32 may help"
LINES = [
    "Two dogs play in the snow.",
    "A man rides a horse.",
    "The children are at school.",
    "A horse drinks water, and a dog sleeps.",
    "",
    "She reads a book.",
]
BAD = [1, 3]


def copy_model(folder, change):
    """Copy the bundled model, its tensors changed."""
    folder.mkdir()
    tensors = {}
    for path in BUNDLED_MODEL.iterdir():
        if path.suffix == ".safetensors":
            tensors |= load_file(path)
        elif path.is_file() and "index" not in path.name:
            shutil.copy(path, folder)
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def horseless(tmp_path_factory):
    """A model whose encoder overflows, even in float32, where it reads of a horse."""
    (tokens,) = Translator(device="cpu").tokenizer.encode(["horse"], "eng_Latn")

    def change(tensors):
        embedding = tensors["model.shared.weight"].clone()
        embedding[tokens[-2]] *= 3e37
        tensors["model.encoder.embed_tokens.weight"] = embedding

    return copy_model(tmp_path_factory.mktemp("models") / "horseless", change)


@pytest.fixture(scope="module")
def too_large(tmp_path_factory):
    """A model that is right in float32 and overflows in float16, wherever it is."""

    def change(tensors):
        for end in ("weight", "bias"):
            tensors[f"model.decoder.layers.1.fc2.{end}"] *= 1e4

    return copy_model(tmp_path_factory.mktemp("models") / "large", change)


def use_slots(monkeypatch):
    """Let the engine of the GPU run, on its kernels' twins."""

    def make_engine(parameters, decode, options, num_tokens):
        plan = SlotPlan(parameters.config, decode.beam_size, 4, 2**30, max_batch_rows=3)
        return SlotEngine(parameters, decode, num_tokens, plan)

    monkeypatch.setattr(devices, "make_engine", make_engine)


@pytest.mark.parametrize("engine", ["plain", "slots"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_broken_row_is_marked_and_its_neighbours_are_not_touched(
    horseless, engine, beam, monkeypatch
):
    if engine == "slots":
        use_slots(monkeypatch)
    arguments = {"src": "eng_Latn", "tgt": "fra_Latn", "beam": beam}
    sound = list(Translator(device="cpu").translate(LINES, **arguments))
    found = list(Translator(horseless, device="cpu").translate(LINES, **arguments))
    assert len(found) == len(LINES)
    for index, (row, other) in enumerate(zip(found, sound, strict=True)):
        if index in BAD:
            assert (row.status, row.error, row.text) == ("failed", REASON, "")
            assert row.score is None
        else:
            assert (row.status, row.error) == (other.status, None)
            assert row.text == other.text


def test_the_command_goes_on_tells_the_rows_and_ends_with_code_1(horseless, tmp_path, capsys):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    words = f"translate {source} -o {output} --model {horseless} --device cpu --status"
    code = cli.run([*words.split(), "--src", "eng_Latn", "--tgt", "fra_Latn"])
    assert code == 1
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [index for index, row in enumerate(rows) if row["status"] == "failed"] == BAD
    assert [row.get("translation_error") for row in rows] == [
        REASON if index in BAD else None for index in range(len(LINES))
    ]
    said = capsys.readouterr().err
    assert f"in.jsonl:2: {REASON}" in said
    table = [line.split()[1:] for line in said.splitlines()[-4:]]
    assert [cells[:2] for cells in table if cells[0] in ("blank", "failed")] == [
        ["blank", "1"],
        ["failed", "2"],
    ]


def test_half_precision_that_is_too_narrow_marks_rows_where_float32_does_not(too_large):
    arguments = {"src": "eng_Latn", "tgt": "fra_Latn", "beam": 2}
    narrow = list(Translator(too_large, "cpu", "float16").translate(LINES, **arguments))
    assert [row.status for row in narrow] == ["failed"] * 4 + ["blank", "failed"]
    wide = list(Translator(too_large, "cpu", "float32").translate(LINES, **arguments))
    assert not any(row.error for row in wide)


def test_a_model_that_is_never_sound_ends_the_run_with_its_cause(too_large):
    lines = [f"This is the line with number {number}." for number in range(200)]
    translations = Translator(too_large, "cpu", "float16").translate(
        lines, src="eng_Latn", tgt="fra_Latn", beam=1
    )
    with pytest.raises(ModelError, match=r"none had finite scores.*\(dtype float32 is the widest"):
        list(translations)


def test_float16_weights_that_are_infinite_are_refused_when_loaded(tmp_path):
    """What does not even fit the format is told before a row is read."""

    def change(tensors):
        tensors["model.decoder.layers.1.fc2.weight"] *= 1e9

    model = Translator(copy_model(tmp_path / "model", change), "cpu", "float16")
    with pytest.raises(ModelError, match="too large for float16; use"):
        list(model.translate(LINES, src="eng_Latn", tgt="fra_Latn"))
