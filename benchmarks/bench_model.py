"""A model of any NLLB shape that really translates and really stops, trained in a minute.

A core of two encoder and two decoder layers learns captions on a sub-vocabulary at full width; then
it grows into the whole shape. Added layers' output projections and unused vocabulary rows are near
zero, and a penalty holds the trained log-sum-exp near 25, far above the unused rows' logits near 0:
every engine does all the work of the shape, and BLEU shows whether it did it right.
"""

import copy
import gzip
import random
import time
from pathlib import Path

import sentencepiece
import torch
from torch import Tensor
from transformers import M2M100Config, M2M100ForConditionalGeneration

LANGUAGES = {"en": 256047, "fr": 256057, "de": 256042, "cs": 256035}
M2M_LANGUAGES = {"en": 128022, "fr": 128028, "de": 128020, "cs": 128017}
PAD, EOS = 1, 2
PIECES = 8000
SUB_VOCABULARY = 8192
SHAPES = {
    "600m": (1024, 12, 4096, 256206),
    "1.3b": (1024, 24, 8192, 256206),
    "3.3b": (2048, 24, 8192, 256206),
    "m2m-418m": (1024, 12, 4096, 128112),
    "m2m-1.2b": (1024, 24, 8192, 128112),
    "tiny": (128, 3, 256, 256206),
}


def config_of(shape: str) -> M2M100Config:
    """The config of one of SHAPES."""
    width, layers, ffn, vocabulary = SHAPES[shape]
    heads = 16 if width >= 1024 else 4
    return M2M100Config(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        attention_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        init_std=0.02,
    )


def languages_of(shape: str) -> dict[str, int]:
    """The ids that the shape's family gives to the corpus' languages."""
    return M2M_LANGUAGES if shape.startswith("m2m") else LANGUAGES


def read_lines(data: Path, split: str, language: str) -> list[str]:
    """Lines of SPLIT.LANGUAGE.gz."""
    with gzip.open(data / f"{split}.{language}.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


class Corpus:
    """Captions in four languages as ids, one to three joined to a sentence."""

    def __init__(self, data: Path, work: Path, shape: str = "600m") -> None:
        self.data = data
        self.languages = languages_of(shape)
        model = work / "captions.model"
        if not model.exists():
            text = work / "captions.txt"
            lines = [line for code in LANGUAGES for line in read_lines(data, "train", code)]
            text.write_text("\n".join(lines) + "\n", encoding="utf-8")
            sentencepiece.SentencePieceTrainer.train(
                input=str(text),
                model_prefix=str(model.with_suffix("")),
                vocab_size=PIECES,
                model_type="bpe",
                character_coverage=1.0,
                minloglevel=2,
            )
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))

    def rows(self, split: str) -> list[tuple[list[int], ...]]:
        """Each line of a split in all languages."""
        columns = []
        for code in LANGUAGES:
            encoded = self.pieces.encode(read_lines(self.data, split, code))
            columns.append([[piece + 1 for piece in line] for line in encoded])
        return list(zip(*columns, strict=True))

    def test(self, count: int, target: str = "fr") -> tuple[list[list[int]], list[list[int]]]:
        """Sources with language token and `</s>`, and references, for measuring."""
        column = list(LANGUAGES).index(target)
        rows = self.rows("val") + self.rows("test_2016_flickr")
        examples = joined(random.Random(1), rows, count)
        sources = [[self.languages["en"], *example[0], EOS] for example in examples]
        return sources, [example[column] for example in examples]

    def text(self, tokens: list[int]) -> str:
        """Text of target pieces."""
        return str(self.pieces.decode([t - 1 for t in tokens if 4 <= t <= PIECES]))

    def bleu(self, hypotheses: list[list[int]], references: list[list[int]]) -> float:
        """Corpus BLEU of token lists."""
        import sacrebleu

        texts = [self.text(tokens) for tokens in hypotheses]
        return float(sacrebleu.corpus_bleu(texts, [[self.text(r) for r in references]]).score)


def joined(rng: random.Random, rows: list, count: int) -> list[tuple[list[int], ...]]:
    """Return examples of one to three rows put together."""
    examples = []
    for _ in range(count):
        picks = [rng.choice(rows) for _ in range(rng.choice([1, 2, 3]))]
        examples.append(tuple(sum(parts, []) for parts in zip(*picks, strict=True)))
    return examples


def padded(rows: list[list[int]]) -> Tensor:
    """Rows as one tensor, padded at the end."""
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def sub_id(code: str) -> int:
    """A language's id in the core's vocabulary, where pieces have the ids that they keep."""
    return SUB_VOCABULARY - 1 - list(LANGUAGES).index(code)


def train(
    config: M2M100Config, corpus: Corpus, seconds: float, device: str
) -> M2M100ForConditionalGeneration:
    """Train the core for so long and return the grown model, in fp32 on the device."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans ~60 ms for every new shape
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    small = copy.deepcopy(config)
    small.vocab_size = SUB_VOCABULARY
    small.encoder_layers = small.decoder_layers = 2
    model = M2M100ForConditionalGeneration(small).to(device).train()
    rate = 7e-4 * min(1.0, 1024 / config.d_model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=(0.9, 0.98), fused=device == "cuda"
    )
    batches = _batches(corpus.rows("train"), 16384 if device == "cuda" else 1024)
    start, step = time.time(), 0
    while (done := (time.time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 200) * max(0.01, min(1.0, (1 - done) / 0.7))
        loss = _loss(model, *(part.to(device, non_blocking=True) for part in next(batches)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
    print(f"trained {step} steps in {seconds:.0f} s, loss {float(loss):.2f}", flush=True)
    return grown(model, config, corpus.languages)


def _batches(rows: list, max_tokens: int):
    rng = random.Random(0)
    codes = list(LANGUAGES)
    while True:
        examples = sorted(joined(rng, rows, 20000), key=lambda example: len(example[0]))
        batches, batch = [], []
        for example in examples:
            width = max(len(example[0]), len(example[1])) + 2
            if batch and (len(batch) + 1) * width > max_tokens:
                batches.append(batch)
                batch = []
            batch.append(example)
        rng.shuffle(batches)
        for batch in batches:
            column = rng.choice([1, 1, 1, 2])
            language = sub_id(codes[column])
            source = [[sub_id("en"), *example[0], EOS] for example in batch]
            target = [[EOS, language, *example[column], EOS] for example in batch]
            yield padded(source), padded(target)


def _loss(model: M2M100ForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    with torch.autocast(source.device.type, dtype=torch.bfloat16):
        hidden = model.model(
            input_ids=source,
            attention_mask=source.ne(PAD).long(),
            decoder_input_ids=target[:, :-1],
        ).last_hidden_state
        logits = model.lm_head(hidden).float().flatten(0, 1)
    wanted = target[:, 1:].flatten()
    lse = logits.logsumexp(1)
    loss = lse - logits.gather(1, wanted[:, None])[:, 0] + 1e-3 * (lse - 25) ** 2
    is_token = wanted != PAD
    return (loss * is_token).sum() / is_token.sum()


@torch.no_grad()
def grown(
    core: M2M100ForConditionalGeneration, config: M2M100Config, languages: dict[str, int]
) -> M2M100ForConditionalGeneration:
    """Return a model of the whole shape that translates as its core does."""
    with core.device:
        model = M2M100ForConditionalGeneration(config)
    trained, tensors = core.state_dict(), model.state_dict()
    for name, tensor in tensors.items():
        if name in trained and tensor.shape == trained[name].shape:
            tensor.copy_(trained[name])
        elif name.endswith(("embed_tokens.weight", "shared.weight", "lm_head.weight")):
            tensor.normal_(0, 1e-3)
            tensor[: PIECES + 1] = trained["model.shared.weight"][: PIECES + 1]
            for code, token in languages.items():
                tensor[token] = trained["model.shared.weight"][sub_id(code)]
        elif name.split(".")[-2] in ("out_proj", "fc2"):
            tensor.mul_(1e-3)
    model.load_state_dict(tensors)
    model.tie_weights()
    model.generation_config.max_length = None
    return model.eval()
