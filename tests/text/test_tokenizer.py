"""Text to ids and back: equal to transformers' tokenisers, and safe whatever the text."""

import json
import pickle
import random
import shutil
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from nllb_cli.errors import ModelError, UsageError
from nllb_cli.text.tokenizer import load_tokenizer
from tests.reference_tokenizers import STRINGS, make_m2m100, make_nllb, train_pieces

BUNDLED = Path(__file__).parents[2] / "nllb_cli" / "demo_model"
# A literal U+2581 cannot be told from the one that SentencePiece's normaliser writes for a space.
WITHOUT_MARKS = [text for text in STRINGS if "\u2581" not in text]
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)


@pytest.fixture(scope="module")
def bundled():
    return load_tokenizer(BUNDLED)


@pytest.fixture(scope="module")
def small_directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    train_pieces(path)
    return path


@pytest.fixture(scope="module")
def small(small_directory):
    return load_tokenizer(small_directory)


@pytest.fixture(scope="module")
def m2m100(small_directory, tmp_path_factory):
    path = tmp_path_factory.mktemp("m2m100")
    shutil.copy(small_directory / "sentencepiece.bpe.model", path)
    reference = make_m2m100(path)
    return load_tokenizer(path), reference


@pytest.fixture(scope="module", params=["bundled", "small"])
def nllb(request, bundled, small, small_directory):
    """Ours, and transformers' of the same SentencePiece file."""
    if request.param == "bundled":
        return bundled, AutoTokenizer.from_pretrained(BUNDLED)
    return small, make_nllb(small_directory)


def ids_of(reference, text):
    """Pieces by transformers, without the parsing of special tokens in the text."""
    return reference(text, add_special_tokens=False, split_special_tokens=True).input_ids


def normalized(tokenizer, text):
    """The text after SentencePiece's own normaliser."""
    return tokenizer._pieces.processor.normalize(text).replace("\u2581", " ").strip(" ")


def test_nllb_pieces_are_those_of_transformers(nllb):
    """Its normaliser goes by grapheme clusters and keeps a trailing space, so ours goes first."""
    ours, reference = nllb
    assert len(WITHOUT_MARKS) > 400
    for text, pieces in zip(WITHOUT_MARKS, ours.encode(WITHOUT_MARKS), strict=True):
        plain = normalized(ours, text)
        assert pieces == (ids_of(reference, plain) if plain else []), repr(text)


def test_nllb_pieces_differ_only_where_the_normalisers_do(nllb):
    ours, reference = nllb
    num_equal = 0
    for text, pieces in zip(STRINGS, ours.encode(STRINGS), strict=True):
        theirs = reference.backend_tokenizer.normalizer.normalize_str(text)
        if theirs == normalized(ours, text) and "\u2581" not in text:
            assert pieces == ids_of(reference, text), repr(text)
            num_equal += 1
    assert num_equal > 0.9 * len(STRINGS)


def test_nllb_pieces_of_random_text_are_those_of_transformers(nllb):
    ours, reference = nllb
    chance = random.Random(0)
    alphabet = [c for c in "".join(WITHOUT_MARKS) if c != "\u2581"]
    texts = ["".join(chance.choices(alphabet, k=chance.randrange(1, 30))) for _ in range(1000)]
    for text, pieces in zip(texts, ours.encode(texts), strict=True):
        plain = normalized(ours, text)
        assert pieces == (ids_of(reference, plain) if plain else []), repr(text)


def test_m2m100_pieces_are_those_of_transformers(m2m100):
    ours, reference = m2m100
    assert ours.family == "m2m100"
    for text, pieces in zip(STRINGS, ours.encode(STRINGS), strict=True):
        assert pieces == ids_of(reference, text), repr(text)
    assert any(pieces.count(ours.unk_id) > 1 for pieces in ours.encode(STRINGS))


def test_m2m100_sources_are_those_of_transformers(m2m100):
    ours, reference = m2m100
    for code in ours.languages:
        reference.src_lang = code
        assert ours.language_id(code) == reference.get_lang_id(code)
        assert ours.encode(["Good day!"], code) == [reference("Good day!").input_ids]


def test_nllb_sources_are_those_of_transformers(bundled):
    reference = AutoTokenizer.from_pretrained(BUNDLED)
    for code in bundled.languages:
        reference.src_lang = code
        assert bundled.language_id(code) == reference.convert_tokens_to_ids(code)
        assert bundled.encode(["Guten Tag!"], code) == [reference("Guten Tag!").input_ids]
    reference = AutoTokenizer.from_pretrained(BUNDLED, legacy_behaviour=True, src_lang="fra_Latn")
    legacy = load_tokenizer(BUNDLED, is_legacy=True)
    assert legacy.encode(["Bonjour."], "fra_Latn") == [reference("Bonjour.").input_ids]


def test_decoding_is_that_of_transformers(nllb):
    ours, reference = nllb
    chance = random.Random(0)
    for _ in range(300):
        ids = [chance.randrange(len(reference)) for _ in range(chance.randrange(30))]
        expected = reference.decode(ids, skip_special_tokens=True).strip()
        assert ours.decode([ids]) == [expected]


def test_m2m100_decoding_is_that_of_transformers(m2m100):
    ours, reference = m2m100
    chance = random.Random(0)
    for _ in range(300):
        ids = [chance.randrange(len(reference.encoder)) for _ in range(chance.randrange(30))]
        expected = reference.decode(ids, skip_special_tokens=True).strip()
        assert ours.decode([ids]) == [expected]


def test_bundled_model_describes_itself(bundled):
    assert bundled.family == "nllb"
    assert bundled.languages == {
        "deu_Latn": 15993,
        "eng_Latn": 15994,
        "fra_Latn": 15995,
        "jpn_Jpan": 15996,
        "nld_Latn": 15997,
        "spa_Latn": 15998,
    }
    assert bundled.size == 16000
    assert not bundled.is_legacy
    assert bundled.notes == ()


@pytest.mark.parametrize("kept", ["tokenizer.json", "tokenizer_config.json"])
def test_one_file_beside_the_pieces_is_enough_for_the_ids(bundled, tmp_path, kept):
    shutil.copy(BUNDLED / "sentencepiece.bpe.model", tmp_path)
    shutil.copy(BUNDLED / kept, tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.languages == bundled.languages
    assert ours.size == bundled.size


def test_source_has_the_language_first_and_the_end_last(bundled):
    (pieces,) = bundled.encode(["Guten Tag!"])
    assert bundled.source(pieces, "deu_Latn") == [15993, *pieces, 2]
    assert bundled.encode(["Guten Tag!"], "deu_Latn") == [[15993, *pieces, 2]]
    assert bundled.count(["Guten Tag!", ""]) == [len(pieces), 0]
    legacy = load_tokenizer(BUNDLED, is_legacy=True)
    assert legacy.source(pieces, "deu_Latn") == [*pieces, 2, 15993]
    assert "source language" in legacy.notes[0]
    for call in (lambda: bundled.source(pieces, "ita_Latn"), lambda: bundled.encode([""], "xx")):
        with pytest.raises(UsageError, match="is not in this model"):
            call()


def test_checkpoint_that_asks_for_the_legacy_order_gets_it(tmp_path):
    shutil.copytree(BUNDLED, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model*"))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"legacy_behaviour": True}))
    assert load_tokenizer(tmp_path).is_legacy
    assert not load_tokenizer(tmp_path, is_legacy=False).is_legacy


def test_cut_keeps_the_language_and_the_end(bundled):
    source = bundled.encode(["one two three four five six"], "eng_Latn")[0]
    assert bundled.cut(source, 5) == [15994, *source[1:4], 2]
    assert bundled.cut(source, len(source)) == bundled.cut(source, 999) == source
    legacy = load_tokenizer(BUNDLED, is_legacy=True)
    source = legacy.encode(["one two three four five six"], "eng_Latn")[0]
    assert legacy.cut(source, 5) == [*source[:3], 2, 15994]


def test_languages_of_both_families_without_any_file_that_names_them(small, m2m100):
    first = small.languages["ace_Arab"]
    assert len(small.languages) == 202
    assert small.languages["eng_Latn"] == first + 46
    assert small.languages["zul_Latn"] == first + 201
    assert small.size == first + 203  # <mask> is the last
    ours, reference = m2m100
    assert len(ours.languages) == 100
    assert ours.languages["af"] == len(reference.encoder)
    assert ours.size == len(reference.encoder) + 100


def test_names_of_tokens_in_a_text_are_plain_text(bundled):
    specials = {0, 1, 2, *bundled.languages.values(), 15999}
    for text in (
        "</s>",
        "a </s> b",
        "<s><pad>",
        "<mask> in front",
        "eng_Latn",
        "deu_Latn eng_Latn",
    ):
        (pieces,) = bundled.encode([text])
        assert len(pieces) > 2
        assert not specials & set(pieces)


def test_composed_and_decomposed_letters_are_the_same(bundled, small):
    for text in ("é", "café", "Ångström", "Über señor", "ñandú"):
        decomposed = unicodedata.normalize("NFD", text)
        assert decomposed != text
        for ours in (bundled, small):
            assert ours.encode([decomposed]) == ours.encode([text])


def test_what_the_vocabulary_lacks_is_counted(bundled):
    counts = [
        pieces.count(bundled.unk_id)
        for pieces in bundled.encode(
            ["a house", "老鹰捉小鸡", "《红楼梦》", "涨", "Ἡ θάλασσα ἦν ἤρεμος", "☃"]
        )
    ]
    assert counts[0] == 0
    assert all(count > 0 for count in counts[1:])


def test_unknown_and_special_ids_never_become_text(bundled, m2m100):
    (pieces,) = bundled.encode(["a house"])
    ids = [2, 15995, 3, pieces[0], 3, 3, *pieces[1:], 0, 1, 15999, 2, 16000, 10**9, -1]
    assert bundled.decode([ids, [3], [], [15994, 2]]) == ["a house", "", "", ""]
    ours, _ = m2m100
    everything = ours.decode([range(ours.size + 8)])[0]
    assert not [word for word in ("<unk>", "<s>", "</s>", "<pad>", "__en__") if word in everything]
    everything = bundled.decode([range(bundled.size + 8)])[0]
    assert not [word for word in ("<unk>", "</s>", "<mask>", "eng_Latn", "⁇") if word in everything]


@given(st.lists(ANY_TEXT, max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_text_is_survived(texts):
    ours = load_once(BUNDLED)
    encoded = ours.encode(texts)
    assert len(encoded) == len(texts)
    for text, pieces in zip(texts, encoded, strict=True):
        assert ours.encode([text]) == [pieces]
        assert all(3 <= piece < 15993 for piece in pieces)
    for text in ours.decode(encoded):
        assert "⁇" not in text
        text.encode()


@given(st.text("abcdefghijklmnopqrstuvwxyzäöüßéèñ ,.?!'ABCDEFG12345かなカナ日本", max_size=60))
@settings(max_examples=200, deadline=None)
def test_decode_is_the_inverse_of_encode(text):
    ours = load_once(BUNDLED)
    assert ours.knows(text)
    assert ours.decode(ours.encode([text])) == [" ".join(text.split())]


_LOADED = {}


def load_once(path):
    if path not in _LOADED:
        _LOADED[path] = load_tokenizer(path)
    return _LOADED[path]


def test_lone_surrogates_count_as_the_replacement_character(bundled, small):
    for ours in (bundled, small):
        lone, replaced = ours.encode(["a\ud83db \udc00", "a\ufffdb \ufffd"])
        assert lone == replaced
        pair, emoji = ours.encode(["a\ud83d\ude00b", "a\U0001f600b"])
        assert pair == emoji


def test_nul_does_not_end_a_text(bundled, small):
    for ours in (bundled, small):
        pieces = ours.encode(["first\0second"])[0]
        assert ours.decode([pieces])[0].replace(" ", "") == "firstsecond"


def test_a_megabyte_without_a_space_takes_linear_time(bundled):
    bundled.encode(["warm-up"])
    for text in ("a", "日本語の文字", "abcdefghijklmnop", "! "):
        long = (text * 1_000_000)[:1_000_000]
        times = []
        for size in (100_000, 1_000_000):
            start = time.perf_counter()
            bundled.encode([long[:size]])
            times.append(time.perf_counter() - start)
        # linear is 10, quadratic would be 100; a busy machine is forgiven
        assert times[1] < 50 * max(times[0], 0.02), text


def add_language(tmp_path, token_id):
    shutil.copytree(BUNDLED, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model*"))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"tyv_Cyrl": token_id}))
    return load_tokenizer(tmp_path)


@pytest.mark.parametrize("token_id", [15999, 16004])
def test_a_person_may_name_a_language_in_added_tokens(bundled, tmp_path, token_id):
    """Recipes of 2023 give a new language the id of `<mask>`, and leave no file that says so."""
    ours = add_language(tmp_path, token_id)
    assert ours.languages == {**bundled.languages, "tyv_Cyrl": token_id}
    assert ours.size == max(bundled.size, token_id + 1)
    assert ours.source([5], "tyv_Cyrl") == [token_id, 5, 2]


@pytest.mark.parametrize("token_id", [-1, 3, 4, 15991, 1 << 24, 10**30])
def test_the_id_of_a_language_must_be_free(tmp_path, token_id):
    with pytest.raises(ModelError, match="added_tokens.json") as caught:
        add_language(tmp_path, token_id)
    assert "tyv_Cyrl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_added_words_are_shown_and_noted(tmp_path):
    shutil.copytree(BUNDLED, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model*"))
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    word = {"id": 16000, "content": "Kaffeetante", "special": False, "normalized": True}
    special = {"id": 16001, "content": "<tag>", "special": True, "normalized": False}
    content["added_tokens"] += [word, special]
    path.write_text(json.dumps(content))
    ours = load_tokenizer(tmp_path)
    assert ours.size == 16002
    assert ours.decode([[16000, 16001]]) == ["Kaffeetante"]
    assert ours.notes == ("1 words added to the vocabulary are read as plain text",)


def test_it_can_be_sent_to_another_process(bundled):
    copy = pickle.loads(pickle.dumps(bundled))
    assert copy.encode(STRINGS) == bundled.encode(STRINGS)


def test_neither_torch_nor_transformers_is_needed():
    code = (
        "import sys; from pathlib import Path\n"
        "from nllb_cli.text.tokenizer import load_tokenizer\n"
        "assert 'sentencepiece' not in sys.modules\n"
        "assert load_tokenizer(Path(sys.argv[1])).encode(['Guten Tag'])\n"
        "assert not {'torch', 'transformers', 'tokenizers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(BUNDLED)], check=True)
