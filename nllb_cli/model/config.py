"""What the checkpoint is, read from its config.json."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nllb_cli.errors import ModelError
from nllb_cli.model.foreign import WANTED, refusal

MODEL_TYPE = "m2m_100"
MAX_JSON_BYTES = 64 << 20
# Nothing in config.json is trusted for sizes: far above any real model, far below what would
# exhaust memory before the shapes are compared with the weight files.
MAX_SIZES = {
    "vocab_size": 1 << 24,
    "d_model": 1 << 16,
    "encoder_layers": 1 << 10,
    "decoder_layers": 1 << 10,
    "encoder_attention_heads": 1 << 10,
    "decoder_attention_heads": 1 << 10,
    "encoder_ffn_dim": 1 << 20,
    "decoder_ffn_dim": 1 << 20,
    "max_position_embeddings": 1 << 20,
}
OTHER_TYPES = {
    "nllb-moe": "NLLB-MoE, a mixture of experts",
    "nllb_moe": "NLLB-MoE, a mixture of experts",
    "marian": "a Marian (OPUS-MT) model",
    "mbart": "an mBART model",
    "bart": "a BART model",
    "fsmt": "a fairseq WMT model",
    "t5": "a T5 model",
    "mt5": "an mT5 model",
    "seamless_m4t": "a SeamlessM4T model",
    "seamless_m4t_v2": "a SeamlessM4T v2 model",
    "whisper": "a Whisper speech model",
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and ids of an M2M-100 architecture model."""

    vocab_size: int  # rows of the embedding in the checkpoint
    d_model: int  # E
    encoder_layers: int
    decoder_layers: int  # L
    encoder_heads: int
    decoder_heads: int  # H
    encoder_ffn: int
    decoder_ffn: int  # F
    scale_embedding: bool = True
    max_positions: int = 1024
    is_tied: bool = True  # the three embeddings are one, unless the weight files say otherwise
    bos_id: int = 0
    pad_id: int = 1
    eos_id: int = 2
    unk_id: int = 3
    decoder_start_id: int = 2

    @property
    def head_size(self) -> int:
        """D of the decoder."""
        return self.d_model // self.decoder_heads

    @property
    def padded_vocab_size(self) -> int:
        """`vocab_size` rounded up to a multiple of 128, which keeps the lm_head product fast."""
        return -(-self.vocab_size // 128) * 128


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a checkpoint, null fields left out."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelError(f"{path}: over {MAX_JSON_BYTES >> 20} MB, not a checkpoint's file")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not valid JSON; download the file again") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object; download the file again")
    return {name: field for name, field in value.items() if field is not None}


def read_config(directory: Path) -> ModelConfig:
    """Return the shape and ids of the checkpoint in `directory`; refuse what is not M2M-100."""
    path = directory / "config.json"
    if not path.is_file():
        raise refusal(directory, "no config.json in it")
    fields = read_json(path)
    _check_kind(path, fields)
    sizes = {name: _size(path, fields, name, limit) for name, limit in MAX_SIZES.items()}
    for side in ("encoder", "decoder"):
        heads = sizes[f"{side}_attention_heads"]
        if sizes["d_model"] % heads:
            raise ModelError(
                f"{path}: d_model {sizes['d_model']} does not divide by {side}_attention_heads "
                f"{heads}; the file is damaged, download it again"
            )
    ids = _ids(path, fields, sizes["vocab_size"])
    return ModelConfig(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["d_model"],
        encoder_layers=sizes["encoder_layers"],
        decoder_layers=sizes["decoder_layers"],
        encoder_heads=sizes["encoder_attention_heads"],
        decoder_heads=sizes["decoder_attention_heads"],
        encoder_ffn=sizes["encoder_ffn_dim"],
        decoder_ffn=sizes["decoder_ffn_dim"],
        max_positions=sizes["max_position_embeddings"],
        scale_embedding=_flag(path, fields, "scale_embedding"),
        is_tied=_flag(path, fields, "tie_word_embeddings"),
        bos_id=ids["bos_token_id"],
        pad_id=ids["pad_token_id"],
        eos_id=ids["eos_token_id"],
        decoder_start_id=_decoder_start(path, ids, sizes["vocab_size"]),
    )


def _check_kind(path: Path, fields: dict[str, Any]) -> None:
    """Refuse another architecture, a quantised checkpoint, another activation."""
    kind = fields.get("model_type")
    if kind != MODEL_TYPE:
        if kind is None:
            raise refusal(path.parent, "its config.json has no model_type")
        name = OTHER_TYPES.get(str(kind), f"a model of type {str(kind)[:40]!r}")
        raise ModelError(f"{path}: {name}; --model takes {WANTED} (model_type {MODEL_TYPE!r})")
    quantization = fields.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise ModelError(
            f"{path}: quantised weights ({str(method or 'unknown method')[:40]}) are not "
            "supported; use the original checkpoint, --dtype makes it smaller"
        )
    activation = fields.get("activation_function", "relu")
    if activation != "relu":
        raise ModelError(
            f"{path}: activation_function {str(activation)[:40]!r} is not supported; NLLB-200 and "
            "M2M-100 use 'relu'"
        )


def _size(path: Path, fields: dict[str, Any], name: str, limit: int) -> int:
    default = {"max_position_embeddings": 1024}.get(name)
    value = fields.get(name, default)
    if value is None:
        raise ModelError(f"{path}: {name} is missing; download the file again")
    # bool is an int in Python: true would pass as 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise ModelError(f"{path}: {name} {str(value)[:40]} is not a number from 1 to {limit}")
    return value


def _flag(path: Path, fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, True)
    if not isinstance(value, bool):
        raise ModelError(f"{path}: {name} {str(value)[:40]} is neither true nor false")
    return value


def _ids(path: Path, fields: dict[str, Any], vocab_size: int) -> dict[str, int]:
    defaults = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    ids = {name: fields.get(name, default) for name, default in defaults.items()}
    ids["decoder_start_token_id"] = fields.get("decoder_start_token_id", ids["eos_token_id"])
    for name, value in ids.items():
        ids[name] = _one_id(path, name, value, vocab_size)
    return ids


def _one_id(path: Path, name: str, value: Any, vocab_size: int) -> int:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
        raise ModelError(
            f"{path}: {name} {str(value)[:40]} is not one token id below vocab_size {vocab_size}"
        )
    return value


def _decoder_start(config_path: Path, ids: dict[str, int], vocab_size: int) -> int:
    """Return the decoder's first token: generation_config.json has the last word, if present."""
    path = config_path.with_name("generation_config.json")
    if not path.exists():
        return ids["decoder_start_token_id"]
    value = read_json(path).get("decoder_start_token_id", ids["decoder_start_token_id"])
    return _one_id(path, "decoder_start_token_id", value, vocab_size)
