"""Families and ids from the files of a directory."""

import json

import pytest

from nllb_cli.errors import ModelError
from nllb_cli.languages import family_languages
from nllb_cli.text.vocabulary import language_ids, read_tokenizer_files

FIRST = 256001
CODES = [language.code for language in family_languages("nllb")]
STANDARD = {language.code: language.id for language in family_languages("nllb")}


def write(path, **files):
    """Write JSON files by their names without suffix."""
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def ids(path, first_id=FIRST):
    return language_ids(read_tokenizer_files(path), first_id)


def decoder(tokens):
    """`added_tokens_decoder` of a tokenizer_config.json."""
    entries = {str(i): {"content": token, "special": True} for token, i in tokens.items()}
    return {"tokenizer_class": "NllbTokenizer", "added_tokens_decoder": entries}


@pytest.mark.parametrize(
    ("name", "has_vocab", "family"),
    [
        (None, False, "nllb"),
        (None, True, "m2m100"),
        ("", True, "m2m100"),
        ("NllbTokenizer", True, "nllb"),
        ("NllbTokenizerFast", False, "nllb"),
        ("M2M100Tokenizer", False, "m2m100"),
        ("PreTrainedTokenizerFast", False, "nllb"),
        ("TokenizersBackend", False, "nllb"),
    ],
)
def test_family_is_the_class_then_the_files(tmp_path, name, has_vocab, family):
    write(tmp_path, tokenizer_config={"tokenizer_class": name})
    if has_vocab:
        write(tmp_path, vocab={"<s>": 0})
    assert read_tokenizer_files(tmp_path).family == family


def test_no_config_at_all_is_nllb(tmp_path):
    assert read_tokenizer_files(tmp_path).family == "nllb"


@pytest.mark.parametrize("name", ["MBart50Tokenizer", "SeamlessM4TTokenizer", ["x"], 7])
def test_another_tokeniser_is_refused_by_name(tmp_path, name):
    write(tmp_path, tokenizer_config={"tokenizer_class": name})
    with pytest.raises(ModelError, match="neither of NLLB-200 nor of M2M-100"):
        read_tokenizer_files(tmp_path)


def test_special_ids_of_another_model_are_refused(tmp_path):
    write(tmp_path, added_tokens={"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3})
    with pytest.raises(ModelError, match="another model"):
        read_tokenizer_files(tmp_path)


def test_ids_without_files_are_those_of_the_original(tmp_path):
    assert ids(tmp_path) == STANDARD
    assert STANDARD["eng_Latn"] == 256047


def test_ids_from_each_file(tmp_path):
    tokens = {"xx_Latn": 256300, "fra_Latn": 256301, "<mask>": 256302, "<tag>": 256303}
    expected = {"xx_Latn": 256300, "fra_Latn": 256301}
    for name, content in (
        ("added_tokens", tokens),
        ("tokenizer_config", decoder(tokens)),
        ("tokenizer", {"added_tokens": [{"content": t, "id": i} for t, i in tokens.items()]}),
        ("tokenizer", {"model": {"vocab": tokens}}),
    ):
        write(tmp_path, **{name: content})
        assert ids(tmp_path) == expected, name
        (tmp_path / f"{name}.json").unlink()


def test_the_first_file_that_has_a_token_is_believed(tmp_path):
    write(tmp_path, added_tokens={"fra_Latn": 256401, "deu_Latn": 256402, "spa_Latn": 256403})
    write(tmp_path, tokenizer_config=decoder({"fra_Latn": 256301, "deu_Latn": 256302}))
    write(tmp_path, tokenizer={"added_tokens": [{"content": "fra_Latn", "id": 256201}]})
    assert ids(tmp_path) == {"fra_Latn": 256201, "deu_Latn": 256302, "spa_Latn": 256403}


def test_a_new_language_comes_on_top_of_the_202(tmp_path):
    write(tmp_path, added_tokens={"tyv_Cyrl": 256204, "<mask>": 256203})
    assert ids(tmp_path) == STANDARD | {"tyv_Cyrl": 256204}


def test_languages_of_its_own_replace_the_202(tmp_path):
    write(tmp_path, added_tokens={"tyv_Cyrl": 256001, "tok_Latn": 256002})
    assert ids(tmp_path) == {"tyv_Cyrl": 256001, "tok_Latn": 256002}


def shifted():
    return {"<mask>": 256001} | {code: i + 1 for code, i in STANDARD.items()}


@pytest.mark.parametrize("num_languages", [2, 202])
@pytest.mark.parametrize("file", ["added_tokens", "tokenizer_config"])
def test_shifted_ids_are_refused(tmp_path, file, num_languages):
    tokens = dict(list(shifted().items())[: num_languages + 1])
    content = decoder(tokens) if file == "tokenizer_config" else tokens
    write(tmp_path, **{file: content})
    with pytest.raises(
        ModelError, match=r"shifted by one .*use the original model's tokeniser files"
    ) as caught:
        ids(tmp_path)
    assert "\n" not in str(caught.value)
    if num_languages == 202:
        assert "eng_Latn is 256048, not 256047" in str(caught.value)


def test_unshifted_ids_in_files_are_taken(tmp_path):
    write(tmp_path, added_tokens={"<mask>": 256203} | STANDARD)
    assert ids(tmp_path) == STANDARD


def test_m2m100_languages_follow_the_vocabulary(tmp_path):
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4}
    write(tmp_path, vocab=vocab)
    found = ids(tmp_path)
    assert len(found) == 100
    assert (found["af"], found["en"], found["zu"]) == (5, 23, 104)
    write(tmp_path, tokenizer_config={"language_codes": "wmt21"})
    codes = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]
    assert ids(tmp_path) == {code: 5 + k for k, code in enumerate(codes)}


def test_m2m100_languages_of_a_fine_tune(tmp_path):
    write(tmp_path, vocab={"<s>": 0, "a": 1}, added_tokens={"__tok__": 110, "__af__": 2})
    assert ids(tmp_path)["tok"] == 110
    # transformers gives a new token the id of Afrikaans where no file lists the old ones
    write(tmp_path, added_tokens={"__tok__": 2})
    found = ids(tmp_path)
    assert found["tok"] == 2
    assert "af" not in found
    write(tmp_path, added_tokens={"__en__": 77})
    with pytest.raises(ModelError, match="not of one checkpoint"):
        ids(tmp_path)


@pytest.mark.parametrize("file", ["tokenizer_config", "tokenizer", "added_tokens", "vocab"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"7", b'"a"', b"\xff\xfe{}", b"[" * 100_000, b'{"a": ' * 100_000]
)
def test_a_damaged_file_is_one_line(tmp_path, file, content):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    if file == "tokenizer":
        (tmp_path / "vocab.json").unlink()
    (tmp_path / f"{file}.json").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_tokenizer_files(tmp_path)
    assert f"{file}.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"added_tokens_decoder": [1]}},
        {"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "a"}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"9" * 5000: {"content": "a"}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"5": {"content": None}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"5": "a"}}},
        {"added_tokens": {"a": "b"}},
        {"added_tokens": {"a": 10**12}},
        {"added_tokens": {"a": -1}},
        {"added_tokens": {"a": True}},
        {"added_tokens": {"a": 1.5}},
        {"added_tokens": {"\ud800": 5}},
        {"vocab": {"a": [1]}},
    ],
)
def test_wrong_types_are_one_line(tmp_path, files):
    write(tmp_path, **files)
    with pytest.raises(ModelError) as caught:
        read_tokenizer_files(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_directory_in_place_of_a_file(tmp_path):
    (tmp_path / "tokenizer_config.json").mkdir()
    with pytest.raises(ModelError, match="cannot be read"):
        read_tokenizer_files(tmp_path)
