"""A fake engine and a byte tokenizer, which stand in for the model where text does not matter."""

import random

import pytest
from hypothesis import settings

from nllb_cli.records import Hypothesis

settings.register_profile("same each time", derandomize=True, deadline=None)
settings.load_profile("same each time")


def pytest_runtest_setup(item):
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


class FakeEngine:
    """Gives each source's pieces back, a few batches at a time, in random order."""

    def __init__(self, seed=0, num_batches=3):
        self.random, self.num_batches, self.batches = random.Random(seed), num_batches, []

    def translate(self, source):
        while batch := source.take(True):
            segments = list(batch.segments)
            while len(self.batches) % self.num_batches and (more := source.take(False)):
                segments += more.segments
            self.batches.append(len(segments))
            self.random.shuffle(segments)
            for segment in segments:
                hypothesis = Hypothesis(segment.source_tokens[1:-1], -1.0, "eos")
                yield segment, (hypothesis,) * len(segment.target_ids)

    def close(self):
        pass


class ByteTokenizer:
    """A byte a token, shifted past the specials; a few languages."""

    languages = {"eng_Latn": 300, "fra_Latn": 301, "deu_Latn": 302}
    unk_id = 3

    def knows(self, text):
        return True

    def encode(self, texts, source_lang):
        start = self.languages[source_lang]
        return [
            [start, *[b + 4 for b in text.encode("utf-8", "surrogatepass")], 2] for text in texts
        ]

    def cut(self, source, max_tokens):
        return [*source[: max_tokens - 1], 2]

    def decode(self, tokens):
        return [bytes([t - 4 for t in ids]).decode("utf-8", "surrogatepass") for ids in tokens]


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def tokenizer():
    return ByteTokenizer()
