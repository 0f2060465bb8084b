"""Train a small M2M-100 from a file of sentence pairs, and write a directory that nllb loads.

    python samples/train.py pairs.tsv my-model --src eng_Latn --tgt fra_Latn
    nllb translate samples/sentences.txt --src eng_Latn --tgt fra_Latn --model my-model

With 20,000 pairs of English and Dutch from Tatoeba and --pieces 3000 --width 128 --ffn 512
--heads 2 --encoder-layers 3 --batch-tokens 2048 --rate 3e-3 --dropout 0.05 --steps 1000 it took
12 minutes on one core; 500 unseen sentences came out with chrF 45.7, BLEU 30.3.
The file has a source sentence, a tab and a target sentence a line, and may end in .gz.
Modules bear the names of Hugging Face checkpoints, so that the state dict is the checkpoint.
"""

import argparse
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

PAD, EOS, UNK = 1, 2, 3
Example = tuple[list[int], list[int]]
"""Encoder input `[src] pieces </s>`, and decoder sequence `</s> [tgt] pieces </s>`."""


class Attention(nn.Module):
    """Multi-head attention of queries over the positions that `mask` allows."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, T, D]
            for projected in (self.q_proj(x), self.k_proj(context), self.v_proj(context))
        )
        heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """An encoder layer, or a decoder layer when it has cross-attention; norms come first."""

    def __init__(self, args: argparse.Namespace, is_decoder: bool) -> None:
        super().__init__()
        self.self_attn = Attention(args.width, args.heads)
        self.self_attn_layer_norm = nn.LayerNorm(args.width)
        self.encoder_attn: Attention | None = None
        if is_decoder:
            self.encoder_attn = Attention(args.width, args.heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(args.width)
        self.fc1 = nn.Linear(args.width, args.ffn)
        self.fc2 = nn.Linear(args.ffn, args.width)
        self.final_layer_norm = nn.LayerNorm(args.width)
        self.dropout = nn.Dropout(args.dropout)

    def forward(
        self, x: Tensor, mask: Tensor, encoded: Tensor | None = None, source: Tensor | None = None
    ) -> Tensor:
        y = self.self_attn_layer_norm(x)
        x = x + self.dropout(self.self_attn(y, y, mask))
        if self.encoder_attn is not None:
            y = self.encoder_attn_layer_norm(x)
            x = x + self.dropout(self.encoder_attn(y, encoded, source))
        y = functional.relu(self.fc1(self.final_layer_norm(x)))
        return x + self.dropout(self.fc2(y))


class Stack(nn.Module):
    """The encoder, or the decoder."""

    def __init__(self, args: argparse.Namespace, num_layers: int, is_decoder: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(args, is_decoder) for _ in range(num_layers))
        self.layer_norm = nn.LayerNorm(args.width)

    def forward(self, x: Tensor, *context: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, *context)
        return self.layer_norm(x)


class Model(nn.Module):
    """M2M-100: one embedding for source, target and lm_head, sinusoidal positions."""

    def __init__(self, args: argparse.Namespace, vocab_size: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(vocab_size, args.width, padding_idx=PAD)
        self.encoder = Stack(args, args.encoder_layers, is_decoder=False)
        self.decoder = Stack(args, args.decoder_layers, is_decoder=True)
        self.dropout = nn.Dropout(args.dropout)
        nn.init.normal_(self.shared.weight, std=args.width**-0.5)
        nn.init.zeros_(self.shared.weight[PAD])
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)

    def embed(self, ids: Tensor) -> Tensor:
        """Return scaled embeddings plus positions; the first token has position 2."""
        width = self.shared.embedding_dim
        scale = math.log(10000) / (width // 2 - 1)
        rates = torch.exp(torch.arange(width // 2, device=ids.device) * -scale)
        angles = (torch.arange(ids.shape[1], device=ids.device) + 2)[:, None] * rates  # [T, E / 2]
        positions = torch.cat([angles.sin(), angles.cos()], dim=1)
        return self.dropout(self.shared(ids) * math.sqrt(width) + positions)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits after each target token.

        Shapes: source [B, S], target [B, T] -> [B, T, V]. Padding stands on the right.
        """
        source_mask = (source != PAD)[:, None, None, :]  # [B, 1, 1, S]
        size = target.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool, device=target.device).tril()
        encoded = self.encoder(self.embed(source), source_mask)
        decoded = self.decoder(self.embed(target), causal, encoded, source_mask)
        return functional.linear(decoded, self.shared.weight)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the sentence pairs of a file; a line that is no pair ends the program."""
    pairs = []
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            sides = line.decode().rstrip("\r\n").split("\t")
            if len(sides) != 2:
                sys.exit(f"{path}:{number}: one tab is wanted, between source and target")
            pairs.append((sides[0], sides[1]))
    return pairs


def train_pieces(pairs: list[tuple[str, str]], size: int, seed: int, output: Path) -> Any:
    """Train a SentencePiece BPE model over both sides, write it to `output` and load it."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text")
        text.write_text("\n".join(map("\n".join, pairs)), encoding="utf-8")
        sentencepiece.set_random_generator_seed(seed)
        sentencepiece.SentencePieceTrainer.train(
            input=str(text),
            model_prefix=str(Path(folder, "pieces")),
            model_type="bpe",
            vocab_size=size,
            hard_vocab_limit=False,  # few sentences give fewer pieces
            character_coverage=0.9998,
            normalization_rule_name="nfkc",
            minloglevel=2,
        )
        output.write_bytes(Path(folder, "pieces.model").read_bytes())
    return sentencepiece.SentencePieceProcessor(model_file=str(output))


def write_files(output: Path, args: argparse.Namespace, first_id: int) -> dict[str, int]:
    """Write configuration and tokeniser files; return the ids of the languages.

    Ids as NLLB's: `<s>`, `<pad>`, `</s>`, `<unk>`, the pieces, the languages, `<mask>`.
    """
    codes = sorted({args.src, args.tgt})
    added = dict(enumerate(["<s>", "<pad>", "</s>", "<unk>"])) | dict(
        enumerate([*codes, "<mask>"], first_id)
    )
    config = {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "vocab_size": max(added) + 1,
        "d_model": args.width,
        "decoder_start_token_id": EOS,
    }
    for side, num_layers in (("encoder", args.encoder_layers), ("decoder", args.decoder_layers)):
        config |= {
            f"{side}_layers": num_layers,
            f"{side}_attention_heads": args.heads,
            f"{side}_ffn_dim": args.ffn,
        }
    tokens = {str(i): {"content": token, "special": True} for i, token in added.items()}
    tokenizer = {
        "tokenizer_class": "NllbTokenizer",
        "added_tokens_decoder": tokens,
        "additional_special_tokens": codes,
    }
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (output / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n")
    return {code: first_id + k for k, code in enumerate(codes)}


def encode_pairs(
    pairs: list[tuple[str, str]], args: argparse.Namespace, pieces: Any, ids: dict[str, int]
) -> list[Example]:
    """Return the examples of one direction, or of both; overlong sentences are left out."""
    sides = [
        [[UNK if piece == 0 else piece + 1 for piece in text] for text in pieces.encode(list(side))]
        for side in zip(*pairs, strict=True)
    ]
    directions = [(args.src, args.tgt, *sides)]
    if args.both:
        directions.append((args.tgt, args.src, *reversed(sides)))
    return [
        ([ids[source_lang], *source, EOS], [EOS, ids[target_lang], *target, EOS])
        for source_lang, target_lang, sources, targets in directions
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) <= args.max_tokens
    ]


def batches(examples: list[Example], max_tokens: int, rng: random.Random) -> Iterator[list[Tensor]]:
    """Yield padded batches of examples of about one length, pass after pass, shuffled."""
    while True:
        rng.shuffle(examples)
        examples.sort(key=lambda example: max(map(len, example)))  # stable: ties stay shuffled
        groups: list[list[Example]] = [[]]
        for example in examples:
            if (len(groups[-1]) + 1) * max(map(len, example)) > max_tokens and groups[-1]:
                groups.append([])
            groups[-1].append(example)
        rng.shuffle(groups)
        for group in groups:
            yield [
                nn.utils.rnn.pad_sequence(list(map(torch.tensor, side)), True, PAD)
                for side in zip(*group, strict=True)
            ]


def train(model: Model, examples: list[Example], args: argparse.Namespace) -> None:
    """Train for `args.steps` batches; the rate rises for a tenth of them, then falls to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.98))
    warmup = max(args.steps // 10, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / warmup, (args.steps - n) / max(args.steps - warmup, 1))
    )
    stream = batches(examples, args.batch_tokens, random.Random(args.seed))
    start = time.monotonic()
    for step in range(1, args.steps + 1):
        source, target = (side.to(args.device) for side in next(stream))
        logits = model(source, target[:, :-1])[:, 1:]  # the language is given, not predicted
        loss = functional.cross_entropy(
            logits.flatten(0, 1), target[:, 2:].flatten(), ignore_index=PAD, label_smoothing=0.1
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % args.every == 0:
            seconds = time.monotonic() - start
            print(f"step {step}: loss {loss.item():.3f}, {seconds:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Train as the command line says."""
    args = parse(arguments)
    torch.manual_seed(args.seed)
    args.output.mkdir(parents=True, exist_ok=True)
    pairs = read_pairs(args.pairs)
    pieces = train_pieces(pairs, args.pieces, args.seed, args.output / "sentencepiece.bpe.model")
    ids = write_files(args.output, args, pieces.get_piece_size() + 1)
    examples = encode_pairs(pairs, args, pieces, ids) or sys.exit(f"{args.pairs}: no usable pair")
    model = Model(args, max(ids.values()) + 2).to(args.device)
    num_weights = sum(weight.numel() for weight in model.parameters())
    print(f"{len(examples):,} examples, {num_weights:,} parameters", flush=True)
    train(model, examples, args)
    weights = {f"model.{name}": weight.cpu() for name, weight in model.state_dict().items()}
    save_file(weights, args.output / "model.safetensors", metadata={"format": "pt"})


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pairs", type=Path, help="source<TAB>target a line; .gz is unpacked")
    parser.add_argument("output", type=Path, help="directory to write")
    parser.add_argument("--src", required=True, help="code of the source language: eng_Latn")
    parser.add_argument("--tgt", required=True, help="code of the target language: fra_Latn")
    parser.add_argument("--both", action="store_true", help="learn both directions")
    sizes = {"pieces": 8000, "width": 256, "ffn": 1024, "heads": 4, "steps": 4000, "every": 100}
    sizes |= {"encoder-layers": 4, "decoder-layers": 2, "max-tokens": 60, "batch-tokens": 4096}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate: %(default)s")
    parser.add_argument("--dropout", type=float, default=0.1, help="default: %(default)s")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
