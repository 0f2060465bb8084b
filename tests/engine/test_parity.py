"""Equal tokens with transformers: thirty random models, the bundled one, long rows, any mates."""

import random

import pytest
import torch

from nllb_cli.engine.engine import PlainEngine
from nllb_cli.model.hub import BUNDLED_MODEL
from nllb_cli.model.weights import load_parameters
from nllb_cli.text.tokenizer import load_tokenizer
from tests.engine.parity import compare, make_segments, options_of, translate
from tests.reference import make_checkpoint

CPU = torch.device("cpu")
RULES = ("false", "true", "never")
PENALTIES = (-0.5, 0.0, 0.6, 1.0, 2.0)
SENTENCES = {
    "eng_Latn": ["Good morning.", "Where is the station?", "I have lost my keys, can you help me?"],
    "fra_Latn": ["Il pleut depuis hier.", "Quelle heure est-il ?", "Nous avons faim."],
    "deu_Latn": ["Das ist mein Bruder.", "Ich trinke gern Tee.", "Warum weint das Kind?"],
    "spa_Latn": ["Mañana iremos al mar.", "No tengo dinero.", "¿Hablas inglés?"],
    "nld_Latn": ["De kat slaapt op de stoel.", "Wat kost dit boek?", "Tot morgen!"],
    "jpn_Jpan": ["今日は寒いですね。", "駅はどこですか。", "私は学生です。"],
}


def make_model(path, seed, **shape):
    model = make_checkpoint(path, seed=seed, **shape)
    return model, load_parameters(path, CPU, torch.float32)


def make_rows(seed, vocab_size, num_rows=5, longest=24):
    """Ragged sources: language token, pieces, `</s>`."""
    rng = random.Random(seed)
    lengths = [rng.randrange(1, longest) for _ in range(num_rows)]
    return [[vocab_size - 5, *(rng.randrange(4, vocab_size) for _ in range(n)), 2] for n in lengths]


@pytest.mark.parametrize("seed", range(30))
def test_random_models(tmp_path, seed):
    """Both families' id layouts differ in where the languages stand, nothing else in the engine."""
    vocab_size = (97, 131, 300)[seed % 3]
    model, parameters = make_model(
        tmp_path,
        seed,
        vocab_size=vocab_size,
        is_tied=seed % 4 != 0,
        encoder_layers=1 + seed % 3,
        decoder_layers=1 + (seed // 3) % 3,
        scale_embedding=seed % 5 != 0,
    )
    rows, target = make_rows(seed, vocab_size), vocab_size - 3 - seed % 2
    for index, beam_size in enumerate((1, 4, 5)):
        rule, penalty = RULES[(seed + index) % 3], PENALTIES[(seed + index) % 5]
        options = options_of(beam_size, penalty, rule)
        assert not compare(model, parameters, rows, target, 18, options, max_batch_rows=3)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_with_every_penalty(tmp_path, rule):
    model, parameters = make_model(tmp_path, 77)
    for penalty in PENALTIES:
        for beam_size in (2, 4, 5):
            options = options_of(beam_size, penalty, rule)
            rows = make_rows(int(10 * penalty), 97)
            assert not compare(model, parameters, rows, 91, 20, options, max_batch_rows=4)


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_the_bundled_model(beam_size):
    from transformers import M2M100ForConditionalGeneration

    model = M2M100ForConditionalGeneration.from_pretrained(BUNDLED_MODEL, dtype=torch.float32)
    model.generation_config.max_length = None
    parameters = load_parameters(BUNDLED_MODEL, CPU, torch.float32)
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    options = options_of(beam_size, 1.0, "false")
    for target in ("eng_Latn", "fra_Latn", "jpn_Jpan"):
        rows = [
            row
            for source, texts in SENTENCES.items()
            if source != target
            for row in tokenizer.encode(texts, source)
        ]
        target_id = tokenizer.language_id(target)
        assert not compare(model.eval(), parameters, rows, target_id, 60, options, max_batch_rows=6)


def test_positions_past_the_table(tmp_path):
    """1,025 tokens reach past a table of 1,024 positions; 2,049 past twice of it."""
    model, parameters = make_model(tmp_path, 5)
    for num_tokens in (1025, 2049):
        rng = random.Random(num_tokens)
        row = [92, *(rng.randrange(4, 90) for _ in range(num_tokens - 2)), 2]
        assert not compare(model, parameters, [row], 91, 6, options_of(2, 1.0, "false"))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_result_does_not_depend_on_batch_mates(tmp_path, beam_size):
    """Lengths 3 to 120 beside each other and alone, each with a limit of its own."""
    _, parameters = make_model(tmp_path, 9)
    rng = random.Random(1)
    lengths = [3, 120, 7, 60, 1, 33, 90, 4]
    rows = [[92, *(rng.randrange(4, 90) for _ in range(n)), 2] for n in lengths]
    limits = [2 + n // 2 for n in lengths]
    options = options_of(beam_size, 1.0, "false")
    segments = make_segments(rows, (91,), limits)
    together = translate(PlainEngine(parameters, options, 97), segments, rows_per_batch=8)
    for segment, (expected,) in zip(segments, together, strict=True):
        ((alone,),) = translate(PlainEngine(parameters, options, 97), [segment])
        assert alone.tokens == expected.tokens
        assert alone.finish == expected.finish
        assert len(alone.tokens) + 1 <= segment.max_target_tokens
