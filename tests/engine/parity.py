"""What the engine and transformers make of the same rows, side by side."""

from dataclasses import dataclass

import torch

from nllb_cli.engine.engine import PlainEngine
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Batch, Record, Segment

HF_STOPPING = {"false": False, "true": True, "never": "never"}


class ListSource:
    """Batches that are all there from the start."""

    def __init__(self, batches):
        self.batches = list(batches)

    @property
    def is_exhausted(self):
        return not self.batches

    def take(self, wait):
        return self.batches.pop(0) if self.batches else None


def make_segments(rows, target_ids, limits):
    record = Record(0, ("",), "", ("",))
    return [
        Segment(record, 0, 0, 1, row, tuple(target_ids), limit)
        for row, limit in zip(rows, limits, strict=True)
    ]


def translate(engine, segments, rows_per_batch=5):
    """Return each segment's hypotheses, in the order of the segments."""
    step = rows_per_batch
    batches = [Batch(segments[i : i + step]) for i in range(0, len(segments), step)]
    results = {id(segment): found for segment, found in engine.translate(ListSource(batches))}
    assert len(results) == len(segments)
    return [results[id(segment)] for segment in segments]


@dataclass
class Expected:
    """A row of transformers' output: tokens after the language token, with `</s>` if any."""

    tokens: list
    score: float | None


def generate(model, rows, target_id, limit, options):
    """Return what transformers makes of the rows as one batch."""
    width = max(map(len, rows))
    tokens = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    beam = {}
    if options.beam_size > 1:
        beam = {
            "early_stopping": HF_STOPPING[options.early_stopping],
            "length_penalty": options.length_penalty,
        }
    with torch.inference_mode():
        output = model.generate(
            input_ids=tokens,
            attention_mask=(torch.arange(width) < lengths[:, None]).long(),
            num_beams=options.beam_size,
            do_sample=False,
            forced_bos_token_id=target_id,
            max_new_tokens=limit,
            output_scores=True,
            return_dict_in_generate=True,
            **beam,
        )
    scores = [None] * len(rows)
    if options.beam_size > 1:
        scores = output.sequences_scores.tolist()
    return [
        Expected(row, score)
        for row, score in zip(output.sequences[:, 2:].tolist(), scores, strict=True)
    ]


def differences(hypotheses, expected, eos_id=2, pad_id=1):
    """Return the places where tokens or scores (1e-4) differ."""
    found = []
    for index, ((hypothesis,), row) in enumerate(zip(hypotheses, expected, strict=True)):
        tokens = hypothesis.tokens + [eos_id] * (hypothesis.finish == "eos")
        tokens += [pad_id] * (len(row.tokens) - len(tokens))
        is_close = row.score is None or abs(hypothesis.score - row.score) < 1e-4
        if tokens != row.tokens or not is_close:
            found.append((index, hypothesis, row))
    return found


def compare(model, parameters, rows, target_id, limit, options, **engine_arguments):
    """Return where the engine differs from transformers on these rows."""
    engine = PlainEngine(parameters, options, model.config.vocab_size, **engine_arguments)
    hypotheses = translate(engine, make_segments(rows, [target_id], [limit] * len(rows)))
    return differences(hypotheses, generate(model, rows, target_id, limit, options))


def options_of(beam_size, length_penalty=1.0, early_stopping="false"):
    return DecodeOptions(beam_size, length_penalty, early_stopping)
