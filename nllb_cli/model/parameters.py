"""The tensors of a model under our names, laid out for the machine (projections fused)."""

from dataclasses import dataclass, field

from torch import Tensor

from nllb_cli.model.config import ModelConfig


@dataclass(slots=True, eq=False)
class Linear:
    """y = x @ weight.T + bias."""

    weight: Tensor  # [out, in]
    bias: Tensor  # [out]


@dataclass(slots=True, eq=False)
class Norm:
    """Layer norm over the model width, eps 1e-5."""

    weight: Tensor  # [E]
    bias: Tensor  # [E]


@dataclass(slots=True, eq=False)
class EncoderLayer:
    """Pre-norm: x + out(attention(qkv(self_norm(x)))), then x + fc2(relu(fc1(ffn_norm(x))))."""

    self_norm: Norm
    qkv: Linear  # [3E, E]: queries, keys, values
    out: Linear
    ffn_norm: Norm
    fc1: Linear  # [F, E]
    fc2: Linear  # [E, F]


@dataclass(slots=True, eq=False)
class DecoderLayer:
    """An encoder layer with cross-attention between; its keys and values are in `cross_kv`."""

    self_norm: Norm
    qkv: Linear  # [3E, E]
    out: Linear
    cross_norm: Norm
    cross_q: Linear  # [E, E]
    cross_out: Linear  # [E, E]
    ffn_norm: Norm
    fc1: Linear
    fc2: Linear


@dataclass(slots=True, eq=False)
class Parameters:
    """A whole encoder-decoder. The three embeddings are one tensor in a tied checkpoint."""

    config: ModelConfig
    source_embedding: Tensor  # [V_padded, E]
    target_embedding: Tensor  # [V_padded, E]
    lm_head: Tensor  # [V_padded, E]; rows from config.vocab_size on are zero and never chosen
    encoder_layers: list[EncoderLayer]
    encoder_norm: Norm
    decoder_layers: list[DecoderLayer]
    decoder_norm: Norm
    cross_kv: Linear  # [L*2*E, E]: for each decoder layer its keys, then its values
    notes: list[str] = field(default_factory=list)
    """What a person should know about the checkpoint, a line each, for the CLI to print."""
