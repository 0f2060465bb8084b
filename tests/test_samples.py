"""Samples: small, of every format; a training script whose model is the true architecture."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import M2M100ForConditionalGeneration

from nllb_cli import Translator
from nllb_cli.io.formats import FORMATS, format_of

SAMPLES = Path(__file__).parent.parent / "samples"
SMALL = ["--pieces", "300", "--width", "64", "--ffn", "128", "--heads", "2"]
SMALL += ["--encoder-layers", "2", "--decoder-layers", "1"]


def test_there_is_a_small_sample_of_each_format():
    files = [path for path in SAMPLES.iterdir() if path.is_file()]
    assert {format_of(str(path)) for path in files} == set(FORMATS)
    assert sum(path.stat().st_size for path in files) < 100_000


def test_samples_hold_blank_rows_and_several_languages():
    lines = (SAMPLES / "sentences.txt").read_text().split("\n")
    assert any(not line.strip() for line in lines[:-1])
    rows = [json.loads(line) for line in (SAMPLES / "messages.jsonl").read_text().splitlines()]
    assert None in [row["text"] for row in rows]
    assert len({row["lang"] for row in rows}) == 6


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train", SAMPLES / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model after a few steps on the sample pairs, trained as a person would."""
    output = tmp_path_factory.mktemp("trained") / "model"
    command = [sys.executable, SAMPLES / "train.py", SAMPLES / "pairs.tab", output]
    command += ["--src", "eng_Latn", "--tgt", "fra_Latn", "--both", *SMALL]
    command += ["--steps", "30", "--every", "15", "--rate", "0.01", "--device", "cpu"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return output, done.stdout


def test_training_lowers_the_loss(trained):
    _, told = trained
    losses = [float(line.split()[3].rstrip(",")) for line in told.splitlines() if "loss" in line]
    assert len(losses) == 2
    assert losses[1] < losses[0] - 0.3


def test_a_trained_model_translates(trained):
    translator = Translator(trained[0], device="cpu")
    assert set(translator.tokenizer.languages) == {"eng_Latn", "fra_Latn"}
    for src, tgt in (("eng_Latn", "fra_Latn"), ("fra_Latn", "eng_Latn")):
        texts = ["Where is the station?", "", "Bonjour, madame."]
        results = list(translator.translate(texts, src, tgt, beam=2, max_target_tokens=20))
        assert [result.record.texts[0] for result in results] == texts
        assert results[1].texts == (("",),)


def test_the_scripts_model_computes_what_transformers_computes(trained, script):
    args = script.parse(["x", "y", "--src", "eng_Latn", "--tgt", "fra_Latn", *SMALL])
    reference = M2M100ForConditionalGeneration.from_pretrained(trained[0]).eval()
    weights = {n.removeprefix("model."): w for n, w in reference.state_dict().items()}
    model = script.Model(args, reference.config.vocab_size).eval()
    weights = {name: weights[name] for name in model.state_dict()}
    generator = torch.Generator().manual_seed(3)
    for weight in weights.values():  # biases and norms too, which start at 0 and 1
        weight += 0.1 * torch.randn(weight.shape, generator=generator)
    model.load_state_dict(weights)
    source = torch.tensor([[5, 9, 17, 30, 2], [6, 7, 2, 1, 1]])
    target = torch.tensor([[2, 40, 50, 60], [2, 41, 51, 2]])
    with torch.no_grad():
        expected = reference(
            input_ids=source, attention_mask=(source != 1).long(), decoder_input_ids=target
        ).logits
        torch.testing.assert_close(model(source, target), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("line", ["no tab", "a\tb\tc"])
def test_a_line_that_is_no_pair_is_named(script, tmp_path, line):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\n{line}\n")
    with pytest.raises(SystemExit, match=f"{path}:2: "):
        script.read_pairs(path)
