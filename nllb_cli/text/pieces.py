"""The SentencePiece model of a checkpoint directory, from its own file or from tokenizer.json.

Checkpoints saved by transformers 5 have tokenizer.json alone. It holds the same vocabulary, merges
and normaliser, so that a SentencePiece model is put together from it, with equal pieces.
"""

import base64
import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nllb_cli.errors import ModelError
from nllb_cli.text.vocabulary import SPECIAL_IDS, TokenizerFiles, is_language_token

FILE_NAME = "sentencepiece.bpe.model"
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_BPE = 2
_SMALL = [bytes((value,)) for value in range(128)]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A SentencePiece processor, and what the model calls its pieces."""

    processor: Any
    names: list[str]
    ids: list[int]
    """[piece] The model's id."""
    controls: set[str]
    """Names that stand for no text."""


def load_pieces(files: TokenizerFiles) -> Pieces:
    """Open the SentencePiece model of a directory."""
    path = files.directory / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if not files.tokenizer:
            raise ModelError(
                f"{files.directory}: no tokeniser ({FILE_NAME} or tokenizer.json is needed)"
            ) from None
        return _from_tokenizer_json(files)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    if data.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path}: a git-lfs pointer, not the file; run `git lfs pull`")
    processor = _processor(data, path)
    indices = list(range(processor.get_piece_size()))
    names: list[str] = processor.id_to_piece(indices)
    if any(processor.is_byte(indices)):
        raise ModelError(f"{path}: has pieces for bytes, unlike NLLB-200 and M2M-100")
    controls = set(itertools.compress(names, processor.is_control(indices)))
    if files.family == "m2m100":
        ids = _m2m100_ids(files, names)
    else:
        ids = [SPECIAL_IDS.get(name, index + 1) for index, name in enumerate(names)]
        _check_against_tokenizer_json(files, names, ids)
    return Pieces(processor, names, ids, controls)


def _m2m100_ids(files: TokenizerFiles, names: list[str]) -> list[int]:
    if not files.vocab:
        raise ModelError(f"{files.directory / 'vocab.json'}: missing, and M2M-100 needs it")
    unk_id = SPECIAL_IDS["<unk>"]
    return [files.vocab.get(name, unk_id) for name in names]


def _check_against_tokenizer_json(files: TokenizerFiles, names: list[str], ids: list[int]) -> None:
    if not files.vocab or list(map(files.vocab.get, names)) == ids:
        return
    name, token_id = next(
        (n, i) for n, i in zip(names, ids, strict=True) if files.vocab.get(n) != i
    )
    raise ModelError(
        f"{files.directory}: {FILE_NAME} and tokenizer.json are not of one checkpoint "
        f"({name[:40]!r} is {token_id} in the one, {files.vocab.get(name)} in the other)"
    )


def _processor(data: bytes, path: Path) -> Any:
    # imported here, so that `nllb --help` does without
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_proto=data)
        is_usable = processor.get_piece_size() > 0
    except (RuntimeError, OSError, ValueError) as error:
        raise ModelError(f"{path}: is not a SentencePiece model; download it again") from error
    if not is_usable:
        raise ModelError(f"{path}: is an empty SentencePiece model; download it again")
    return processor


def _from_tokenizer_json(files: TokenizerFiles) -> Pieces:
    path = files.directory / "tokenizer.json"
    model = files.tokenizer.get("model") or {}
    if model.get("type", "BPE") != "BPE" or not files.vocab:
        raise ModelError(f"{path}: has no BPE model; add {FILE_NAME} of the original checkpoint")
    scores = _scores(path, model.get("merges"))
    names = sorted(
        (name for name in files.vocab if not is_language_token(name, files.family)),
        key=lambda name: files.vocab[name],
    )
    proto = b"".join(_piece(name, scores) for name in names)
    proto += _bytes(2, _number(3, _BPE)) + _normalizer(_charsmap(path, files.tokenizer))
    ids = [files.vocab[name] for name in names]
    return Pieces(_processor(proto, path), names, ids, set())


def _scores(path: Path, merges: object) -> dict[str, float]:
    """Return a score for each piece that a merge makes: the earlier the merge, the higher."""
    if not isinstance(merges, list) or not merges:
        raise ModelError(f"{path}: has no merges; add {FILE_NAME} of the original checkpoint")
    scores: dict[str, float] = {}
    for rank, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2:
            raise ModelError(f"{path}: merge {rank} is not a pair")
        scores.setdefault(f"{pair[0]}{pair[1]}", -float(rank))
    return scores


def _piece(name: str, scores: Mapping[str, float]) -> bytes:
    kind = _NORMAL
    if name == "<unk>":
        kind = _UNKNOWN
    elif len(name) > 1 and name not in scores:
        kind = _CONTROL  # no merge makes it, so that no text may become it
    score = scores.get(name, -float(len(scores) + 1))
    fields = _bytes(1, name.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)
    return _bytes(1, fields)


def _normalizer(charsmap: bytes) -> bytes:
    # a dummy space before the text, superfluous spaces removed, spaces shown as U+2581
    return _bytes(3, _bytes(2, charsmap) + _number(3, 1) + _number(4, 1) + _number(5, 1))


def _charsmap(path: Path, tokenizer: Mapping[str, Any]) -> bytes:
    for normalizer in _nested(tokenizer.get("normalizer"), depth=0):
        if normalizer.get("type") == "Precompiled":
            try:
                return base64.b64decode(normalizer["precompiled_charsmap"], validate=True)
            except (KeyError, TypeError, ValueError) as error:
                raise ModelError(f"{path}: its normaliser's table is damaged") from error
    return b""


def _nested(normalizer: object, depth: int) -> Iterator[dict[str, Any]]:
    if isinstance(normalizer, dict) and depth < 4:
        yield normalizer
        parts = normalizer.get("normalizers")
        for part in parts if isinstance(parts, list) else ():
            yield from _nested(part, depth + 1)


def _number(field: int, value: int) -> bytes:
    """Write a small protobuf number."""
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    """Write protobuf bytes, a string or a message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    return bytes((value & 127 | 128,)) + _varint(value >> 7)
