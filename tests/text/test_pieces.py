"""The SentencePiece model of a directory, from its own file or from tokenizer.json."""

import json
import shutil
from pathlib import Path

import pytest

from nllb_cli.errors import ModelError
from nllb_cli.text import pieces
from nllb_cli.text.tokenizer import load_tokenizer
from tests.reference_tokenizers import STRINGS, make_nllb, read_charsmap, train_pieces

BUNDLED = Path(__file__).parents[2] / "nllb_cli" / "demo_model"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A directory with a SentencePiece file, and one as transformers 5 saves the same."""
    path = tmp_path_factory.mktemp("small")
    train_pieces(path / "spm")
    make_nllb(path / "spm").save_pretrained(path / "json")
    assert sorted(p.name for p in (path / "json").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    return path / "spm", path / "json"


def edited(path, change):
    """Change the tokenizer.json in a directory."""
    content = json.loads((path / "tokenizer.json").read_text("utf-8"))
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content))
    return path


def as_of_2022(content):
    """Write merges as strings, and only the languages as special tokens, like the hub's file."""
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"][0] != "<"]
    content["pre_tokenizer"] = {"type": "Metaspace", "add_prefix_space": True}


def as_of_2026(content):
    """Keep the languages out of the vocabulary, as transformers 5 does with a checkpoint's own."""
    vocab = content["model"]["vocab"]
    for token in content["added_tokens"]:
        if token["id"] > 3:
            del vocab[token["content"]]


def test_tokenizer_json_alone_gives_the_same_ids(small):
    ours, rebuilt = (load_tokenizer(path) for path in small)
    assert rebuilt.encode(STRINGS) == ours.encode(STRINGS)
    assert rebuilt.languages == ours.languages
    assert rebuilt.size == ours.size
    everything = [[token_id] for token_id in range(ours.size)]
    assert rebuilt.decode(everything) == ours.decode(everything)


def test_tokenizer_json_alone_of_the_bundled_model(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / name, tmp_path)
    ours, rebuilt = load_tokenizer(BUNDLED), load_tokenizer(tmp_path)
    assert rebuilt.encode(STRINGS) == ours.encode(STRINGS)
    assert rebuilt.languages == ours.languages
    assert rebuilt.size == ours.size


@pytest.mark.parametrize("change", [as_of_2022, as_of_2026])
def test_generations_of_tokenizer_json(small, tmp_path, change):
    ours = load_tokenizer(small[0])
    shutil.copytree(small[1], tmp_path, dirs_exist_ok=True)
    saved = load_tokenizer(edited(tmp_path, change))
    assert saved.encode(STRINGS) == ours.encode(STRINGS)
    assert saved.languages == ours.languages
    assert saved.size == ours.size
    shutil.copy(small[0] / pieces.FILE_NAME, tmp_path)
    assert load_tokenizer(tmp_path).languages == ours.languages


def test_shifted_ids_are_refused_with_either_file(small, tmp_path):
    shutil.copy(small[0] / pieces.FILE_NAME, tmp_path)
    make_nllb(tmp_path, is_shifted=True).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="shifted by one"):
        load_tokenizer(tmp_path)
    (tmp_path / pieces.FILE_NAME).unlink()
    with pytest.raises(ModelError, match="shifted by one"):
        load_tokenizer(tmp_path)


def test_tokenizer_json_without_a_normaliser(small, tmp_path):
    shutil.copytree(small[1], tmp_path, dirs_exist_ok=True)
    plain = load_tokenizer(edited(tmp_path, lambda content: content.update(normalizer=None)))
    ours = load_tokenizer(small[0])
    assert plain.encode(["the house"]) == ours.encode(["the house"])
    assert plain.encode(["\uff41"]) != ours.encode(["\uff41"]) == ours.encode(["a"])


def test_a_vocabulary_word_that_no_merge_makes_is_decoded_and_never_encoded(small, tmp_path):
    shutil.copytree(small[1], tmp_path, dirs_exist_ok=True)
    word = "\u2581zzzqqq"
    ours = load_tokenizer(
        edited(tmp_path, lambda content: content["model"]["vocab"].update({word: 3300}))
    )
    assert 3300 not in ours.encode(["zzzqqq"])[0]
    assert ours.decode([[3300]]) == ["zzzqqq"]


def test_the_table_of_the_normaliser_is_the_file_s_own(small):
    spm, saved = small
    content = json.loads((saved / "tokenizer.json").read_text())
    table = pieces._charsmap(saved / "tokenizer.json", content)
    assert table == read_charsmap((spm / pieces.FILE_NAME).read_bytes())
    assert len(table) > 100_000


def test_no_tokeniser_at_all(tmp_path):
    with pytest.raises(ModelError, match="no tokeniser"):
        load_tokenizer(tmp_path)
    with pytest.raises(ModelError, match="no tokeniser"):
        load_tokenizer(tmp_path / "absent")


def test_m2m100_needs_its_vocabulary(tmp_path):
    shutil.copy(BUNDLED / pieces.FILE_NAME, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "M2M100Tokenizer"}')
    with pytest.raises(ModelError, match=r"vocab\.json: missing"):
        load_tokenizer(tmp_path)


def test_files_of_two_checkpoints(small, tmp_path):
    shutil.copy(small[0] / pieces.FILE_NAME, tmp_path)
    shutil.copy(BUNDLED / "tokenizer.json", tmp_path)
    with pytest.raises(ModelError, match="not of one checkpoint"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\x0a\xff\xff\xff\xff\x7f",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:14bb\nsize 4852054\n",
        (BUNDLED / pieces.FILE_NAME).read_bytes()[:1000],
        (BUNDLED / pieces.FILE_NAME).read_bytes()[:-1000],
        pieces._bytes(1, pieces._bytes(1, b"a")),
    ],
    ids=["empty", "garbage", "huge", "lfs", "start", "cut", "no-unknown"],
)
def test_a_damaged_sentencepiece_file_is_one_line(tmp_path, content):
    (tmp_path / pieces.FILE_NAME).write_bytes(content)
    with pytest.raises(ModelError, match=pieces.FILE_NAME) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def damage(*keys, value):
    def change(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        damage("model", value=None),
        damage("model", value=[1]),
        damage("model", "type", value="Unigram"),
        damage("model", "vocab", value=["a"]),
        damage("model", "vocab", "en", value="5"),
        damage("model", "vocab", "en", value=5.0),
        damage("model", "vocab", "en", value=True),
        damage("model", "vocab", "en", value=-1),
        damage("model", "vocab", "en", value=10**15),
        damage("model", "vocab", "\ud800", value=7),
        damage("model", "vocab", "<unk>", value=0),
        damage("model", "vocab", value={"a": 4}),
        damage("model", "merges", value=None),
        damage("model", "merges", value={"a": "b"}),
        damage("model", "merges", 0, value=["a"]),
        damage("model", "merges", 0, value="a b c"),
        damage("model", "merges", 0, value=7),
        damage("normalizer", "normalizers", 0, "precompiled_charsmap", value="?"),
        damage("normalizer", "normalizers", 0, "precompiled_charsmap", value=7),
        damage("normalizer", "normalizers", 0, "precompiled_charsmap", value="AAAA"),
        damage("added_tokens", value={"a": 1}),
        damage("added_tokens", 0, value="a"),
        damage("added_tokens", 0, "id", value=None),
        damage("added_tokens", 0, "content", value=3),
    ],
)
def test_a_damaged_tokenizer_json_is_one_line(small, tmp_path, change):
    shutil.copytree(small[1], tmp_path, dirs_exist_ok=True)
    edited(tmp_path, change)
    with pytest.raises(ModelError) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
