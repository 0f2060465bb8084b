"""Small tokenisers, as files of a checkpoint and in transformers: what ours is compared to."""

import json
import random
from pathlib import Path

import sentencepiece
from transformers import M2M100Tokenizer, NllbTokenizer
from transformers.tokenization_utils_base import generate_merges

from nllb_cli.languages import family_languages

STRINGS = json.loads((Path(__file__).parent / "text" / "strings.json").read_text("utf-8"))
"""Sentences in many scripts, and oddities; our own."""
SPECIALS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
SPM = "sentencepiece.bpe.model"


def train_pieces(path: Path, vocab_size: int = 3000) -> None:
    """Train a SentencePiece model of NLLB's kind on our strings, and write it into `path`."""
    path.mkdir(parents=True, exist_ok=True)
    with open(path / SPM, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(
                line for text in STRINGS for line in text.split("\n") if "\0" not in line
            ),
            model_writer=file,
            vocab_size=vocab_size,
            model_type="bpe",
            normalization_rule_name="nmt_nfkc",
            character_coverage=0.997,
            minloglevel=2,
        )


def make_nllb(path: Path, *, is_shifted: bool = False) -> NllbTokenizer:
    """Return transformers' NLLB tokeniser of the SentencePiece model in `path`.

    transformers itself would need protobuf for this. Without ids for the languages it puts
    `<mask>` before them, which is the fault that our loader refuses.
    """
    data = (path / SPM).read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = processor.id_to_piece(list(range(3, processor.get_piece_size())))
    vocab = SPECIALS | {piece: index for index, piece in enumerate(pieces, start=4)}
    merges = generate_merges(vocab, skip_tokens=SPECIALS)
    if not is_shifted:
        codes = [language.code for language in family_languages("nllb")]
        vocab |= {token: len(vocab) + k for k, token in enumerate([*codes, "<mask>"])}
    return NllbTokenizer(
        vocab=vocab,
        merges=merges,
        _spm_precompiled_charsmap=read_charsmap(data),
    )


def make_m2m100(path: Path, seed: int = 0, num_missing: int = 40) -> M2M100Tokenizer:
    """Write a vocab.json in another order than the pieces', some missing; return the tokeniser."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path / SPM))
    pieces = processor.id_to_piece(list(range(3, processor.get_piece_size())))
    random.Random(seed).shuffle(pieces)
    vocab = SPECIALS | {piece: i for i, piece in enumerate(pieces[num_missing:], start=4)}
    (path / "vocab.json").write_text(json.dumps(vocab))
    return M2M100Tokenizer(str(path / "vocab.json"), str(path / SPM))


def read_charsmap(model: bytes) -> bytes:
    """Return field 2 (the table) of field 3 (the normaliser) of a SentencePiece protobuf."""
    return dict(_fields(dict(_fields(model))[3]))[2]


def _fields(message: bytes):
    """Yield number and content of a protobuf message's fields; the last of a number counts."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(message, position)
        else:
            size, position = (
                _varint(message, position) if kind == 2 else ({5: 4, 1: 8}[kind], position)
            )
            value = message[position : position + size]
            position += size
        yield key >> 3, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
