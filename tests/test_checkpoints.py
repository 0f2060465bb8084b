"""Checkpoint directories of every form, through the door: transformers' texts, or why not.

The models are random: what they write is no language, so that no mistake reads like a translation.
"""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from nllb_cli import Translator
from nllb_cli.engine import devices
from nllb_cli.engine.sizes import SlotPlan
from nllb_cli.engine.slot_engine import SlotEngine
from nllb_cli.errors import ModelError
from nllb_cli.records import Record
from nllb_cli.stream import StreamOptions
from nllb_cli.text.segments import SplitRules
from tests.engine.parity import generate, options_of
from tests.reference import make_checkpoint, randomize, save_tensors, save_weights
from tests.reference_tokenizers import SPM, make_nllb, train_pieces

NUM_PIECES = 1500
LIMIT = 9
TEXTS = ["Good morning.", "Where is the station?", "a", "The children have lost their keys again."]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A folder with a SentencePiece model, and transformers' tokeniser of it."""
    path = tmp_path_factory.mktemp("pieces")
    train_pieces(path, NUM_PIECES)
    return path, make_nllb(path)


@pytest.fixture
def make(pieces, tmp_path):
    """Write a model beside the SentencePiece file; return both sides' texts when asked."""
    folder, reference = pieces

    def write(**fields):
        fields.setdefault("vocab_size", len(reference))
        model = make_checkpoint(tmp_path, **fields)
        shutil.copy(folder / SPM, tmp_path)
        return model

    return write


def ours(path, tgt="fra_Latn", beam=3, dtype="float32"):
    translator = Translator(path, "cpu", dtype)
    found = translator.translate(TEXTS, "eng_Latn", tgt, beam=beam, max_target_tokens=LIMIT)
    found = list(found)
    assert all(translation.status in ("ok", "script", "limit") for translation in found)
    return [translation.text for translation in found]


def theirs(model, reference, tgt="fra_Latn", beam=3):
    reference.src_lang = "eng_Latn"
    rows = [reference(text).input_ids for text in TEXTS]
    target_id = reference.convert_tokens_to_ids(tgt)
    found = generate(model, rows, target_id, LIMIT, options_of(beam))
    texts = reference.batch_decode([row.tokens for row in found], skip_special_tokens=True)
    return [text.strip() for text in texts]


def only_sentencepiece(path, reference):
    """As it is."""


def added_tokens(path, reference):
    """As transformers of 2022 wrote it."""
    added = {token: i for token, i in reference.get_vocab().items() if i > NUM_PIECES}
    (path / "added_tokens.json").write_text(json.dumps(added))


def config_without_class(path, reference):
    """As in the 3.3B checkpoint: a configuration that does not say whose it is."""
    special = {str(i): {"content": t, "special": True} for t, i in reference.get_vocab().items()}
    special = {i: token for i, token in special.items() if int(i) > NUM_PIECES}
    (path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": special}))


def only_tokenizer_json(path, reference):
    """As transformers 5 writes it."""
    reference.save_pretrained(path)
    (path / SPM).unlink()
    (path / "tokenizer_config.json").unlink()


@pytest.mark.parametrize(
    "form", [only_sentencepiece, added_tokens, config_without_class, only_tokenizer_json]
)
def test_a_tokeniser_in_any_form(make, pieces, tmp_path, form):
    model = make()
    form(tmp_path, pieces[1])
    assert ours(tmp_path) == theirs(model, pieces[1])
    assert ours(tmp_path, "zho_Hant") == theirs(model, pieces[1], "zho_Hant")


@pytest.mark.parametrize(
    ("layout", "dtype", "fields"),
    [
        ("safetensors", "float16", {"scale_embedding": False}),
        ("sharded-safetensors", "bfloat16", {"encoder_layers": 4, "decoder_layers": 1}),
        ("bin", "float32", {"encoder_layers": 1, "decoder_layers": 3}),
        ("sharded-bin", "float16", {"is_tied": False}),
    ],
)
def test_weights_in_any_form(make, pieces, tmp_path, layout, dtype, fields):
    model = make(layout=layout, dtype=getattr(torch, dtype), **fields)
    expected = theirs(model.float(), pieces[1])
    assert ours(tmp_path) == expected
    assert any(expected)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.encoder.embed_tokens.weight"])
@pytest.mark.parametrize("has_positions", [False, True])
def test_one_embedding_under_another_name_and_positions_that_are_stored(
    make, pieces, tmp_path, name, has_positions
):
    model = make()
    state = load_file(tmp_path / "model.safetensors")
    state[name] = state.pop("model.shared.weight")
    if has_positions:  # of a size and with values that must not count
        for side in ("encoder", "decoder"):
            state[f"model.{side}.embed_positions.weights"] = torch.full((11, 32), 7.0)
    save_tensors(tmp_path, state, "safetensors")
    assert ours(tmp_path) == theirs(model, pieces[1])


def use_slots(monkeypatch):
    """Let the engine of the GPU run, on its kernels' twins."""

    def make_engine(parameters, decode, options, num_tokens):
        plan = SlotPlan(parameters.config, decode.beam_size, 4, 2**28, max_batch_rows=3)
        return SlotEngine(parameters, decode, num_tokens, plan)

    monkeypatch.setattr(devices, "make_engine", make_engine)


@pytest.mark.parametrize("engine", ["plain", "slots"])
@pytest.mark.parametrize("beam", [1, 3])
def test_rows_behind_the_vocabulary_are_never_produced(
    make, pieces, tmp_path, engine, beam, monkeypatch
):
    """An embedding that was made larger, for good multiples, has rows that stand for nothing."""
    if engine == "slots":
        use_slots(monkeypatch)
    model, num_tokens = make(), len(pieces[1])
    model.resize_token_embeddings(num_tokens + 18, mean_resizing=False)
    randomize(model, 3)
    rows = model.get_input_embeddings().weight.data
    rows[num_tokens:] = 3 * rows[4:22]  # twice over, each beats what it is made of
    rows[num_tokens + 9 :] *= -1
    model.config.save_pretrained(tmp_path)
    save_weights(tmp_path, model, "safetensors")
    target_id = pieces[1].convert_tokens_to_ids("fra_Latn")
    free = generate(model, [[target_id, 5, 2]] * 2, target_id, LIMIT, options_of(beam))
    assert max(max(row.tokens) for row in free) >= num_tokens
    model.generation_config.suppress_tokens = list(range(num_tokens, num_tokens + 18))
    found = ours(tmp_path, beam=beam)
    assert all(found)
    assert found == theirs(model, pieces[1], beam=beam)


@pytest.mark.parametrize("num_less", [1, 2, 200])
def test_fewer_rows_than_the_tokeniser_has_tokens(make, pieces, tmp_path, num_less):
    num_tokens = len(pieces[1])
    make(vocab_size=num_tokens - num_less)
    with pytest.raises(ModelError) as caught:
        ours(tmp_path)
    text = str(caught.value)
    assert f"the tokeniser has {num_tokens:,} tokens" in text
    assert f"only {num_tokens - num_less:,} rows" in text
    assert text.startswith(str(tmp_path))
    assert "\n" not in text


def test_more_rows_than_the_tokeniser_has_tokens(make, pieces, tmp_path):
    make(vocab_size=len(pieces[1]) + 2)
    assert all(ours(tmp_path))


@pytest.mark.parametrize(("too_long", "status"), [("error", "failed"), ("cut", "cut")])
def test_sources_behind_the_last_position_never_reach_the_model(make, tmp_path, too_long, status):
    """Of 1,024 positions a source may take all; 1,025 and 2,049 tokens are told on the host."""
    make(encoder_layers=1, decoder_layers=1)
    translator, decode = Translator(tmp_path, "cpu", "float32"), options_of(1)
    lengths = [3, 1024, 1025, 5, 2049, 4]
    texts = ["a" + " a" * (length - 3) for length in lengths]
    assert [len(s) for s in translator.tokenizer.encode(texts, "eng_Latn")] == lengths
    reached, engine = [], translator.load(decode)
    encode = engine._model.encode
    engine._model.encode = lambda tokens, lengths: (
        reached.extend(lengths.tolist()) or encode(tokens, lengths)
    )
    rules = translator.rules(None, SplitRules(too_long=too_long, max_target_tokens=5))
    records = [Record(i, (text,), "eng_Latn", ("fra_Latn",)) for i, text in enumerate(texts)]
    _, chunks = translator.stream(records, decode, StreamOptions(rules, on_error="keep"))
    found = [translation for chunk in chunks for translation in chunk]
    assert [row.status == status for row in found] == [length > 1024 for length in lengths]
    num_whole = 1 if too_long == "error" else 3
    assert sorted(reached) == [3, 4, 5, *[1024] * num_whole]
    if too_long == "error":
        assert "the source has 1,023 tokens and the limit is 1,022" in found[2].error
        assert "the source has 2,047 tokens and the limit is 1,022" in found[4].error
