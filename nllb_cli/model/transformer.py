"""The encoder-decoder's forward maths on plain tensors; the cache is an argument."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.config import ModelConfig
from nllb_cli.model.parameters import DecoderLayer, EncoderLayer, Linear, Norm, Parameters

# Half precision's largest value less a margin, as the checkpoints' own code clamps.
FP16_LIMIT = 65504.0 - 1000.0


class PositionTable:
    """Sinusoidal positions; row 0 is the padding's zeros, row k the k-th real token's."""

    def __init__(self, config: ModelConfig, like: Tensor) -> None:
        self._width = config.d_model
        self._like = like
        self._table = self._build(config.max_positions + 1)

    def rows(self, num_positions: int) -> Tensor:
        """Return a table whose rows reach `num_positions`; it grows, so no length is too long.

        The caller passes what its indices can reach: the check is on the host, before a launch.
        Shapes: [at least num_positions + 1, E]
        """
        if num_positions >= self._table.shape[0]:
            self._table = self._build(max(num_positions + 1, 2 * self._table.shape[0]))
        return self._table

    def _build(self, num_rows: int) -> Tensor:
        half = self._width // 2
        step = math.log(10000.0) / max(half - 1, 1)
        rates = torch.exp(torch.arange(half, dtype=torch.float32) * -step)
        # The k-th real token takes row k + 1 of the checkpoints' numbering (its "offset 2").
        positions = torch.arange(1, num_rows + 1, dtype=torch.float32)
        angles = positions[:, None] * rates[None, :]
        table = torch.cat((angles.sin(), angles.cos()), dim=1)
        table = functional.pad(table, (0, self._width - table.shape[1]))
        table[0] = 0.0
        return table.to(device=self._like.device, dtype=self._like.dtype)


class Transformer:
    """Encoder, cross-attention projections and decoder step of one set of parameters."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.config = parameters.config
        self.positions = PositionTable(self.config, parameters.target_embedding)
        self._scale = math.sqrt(self.config.d_model) if self.config.scale_embedding else 1.0

    def encode(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the encoder output; at padded places it is finite and means nothing.

        Shapes: tokens [B, S] int64, padded at the end; lengths [B]; returns [B, S, E]
        """
        S = tokens.shape[1]
        is_token = tokens != self.config.pad_id
        position = is_token.cumsum(1) * is_token
        x = functional.embedding(tokens, self.parameters.source_embedding) * self._scale
        x += functional.embedding(position, self.positions.rows(S))
        source_mask = torch.arange(S, device=tokens.device) < lengths[:, None]  # [B, S]
        mask = None if bool(source_mask.all()) else source_mask[:, None, None, :]
        for layer in self.parameters.encoder_layers:
            x = self._encoder_layer(layer, x, mask)
        return _norm(x, self.parameters.encoder_norm)

    def _encoder_layer(self, layer: EncoderLayer, x: Tensor, mask: Tensor | None) -> Tensor:
        B, S, E = x.shape
        heads = self.config.encoder_heads
        qkv = _linear(_norm(x, layer.self_norm), layer.qkv)
        q, k, v = qkv.view(B, S, 3, heads, E // heads).permute(2, 0, 3, 1, 4)  # [B, H, S, D]
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = _add_linear(x.view(B * S, E), attended.transpose(1, 2).reshape(B * S, E), layer.out)
        x = _add_feed_forward(x, layer).view(B, S, E)
        if x.dtype == torch.float16:
            x.clamp_(-FP16_LIMIT, FP16_LIMIT)
        return x

    def cross_keys_values(self, encoder_output: Tensor) -> Tensor:
        """Return what each decoder layer's cross-attention reads, once a segment.

        Shapes: encoder_output [B, S, E]; returns [L, 2, B, H, S, D]
        """
        B, S, _ = encoder_output.shape
        L, H, D = self.config.decoder_layers, self.config.decoder_heads, self.config.head_size
        projected = _linear(encoder_output, self.parameters.cross_kv)
        return projected.view(B, S, L, 2, H, D).permute(2, 3, 0, 4, 1, 5)

    def decode(self, tokens: Tensor, num_positions: int, cache: DecoderCache) -> Tensor:
        """Run one decode step of the first B slots and write their keys and values to the cache.

        `num_positions` is what the longest of them has in the cache after this step.
        Shapes: tokens [B, K] int64; returns [B, K, E] after the last norm
        """
        B, K = tokens.shape
        cache.reserve(B, num_positions, 0)
        lengths = cache.lengths[:B]
        x = functional.embedding(tokens, self.parameters.target_embedding) * self._scale
        table = self.positions.rows(num_positions)
        # A produced padding token has no position, as in the checkpoints' own code.
        position = (lengths + 1)[:, None] * (tokens != self.config.pad_id)  # [B, K]
        x += functional.embedding(position, table)
        x = x.view(B * K, -1)
        # Each new key belongs to the beam in whose row it lies.
        slots = torch.arange(B, device=tokens.device)
        cache.beam_rows[slots, :, lengths] = torch.arange(K, device=tokens.device)
        self_mask = _self_mask(cache, B, num_positions)
        cross_mask = _cross_mask(cache, B)
        for index, layer in enumerate(self.parameters.decoder_layers):
            self_kv, cross_kv = cache.self_kv[index], cache.cross_kv[index, :, :B]
            x = self._add_self_attention(x, layer, self_kv, (slots, lengths), self_mask)
            x = self._add_cross_attention(x, layer, cross_kv, cross_mask)
            x = _add_feed_forward(x, layer)
        cache.lengths[:B] += 1
        return _norm(x, self.parameters.decoder_norm).view(B, K, -1)

    def _add_self_attention(
        self,
        x: Tensor,
        layer: DecoderLayer,
        self_kv: Tensor,
        places: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> Tensor:
        """Shapes: x [B*K, E]; self_kv [2, B, H, T, K, D]."""
        slots, lengths = places
        B, (H, _, K, D) = slots.shape[0], self_kv.shape[2:]
        qkv = _linear(_norm(x, layer.self_norm), layer.qkv).view(B, K, 3, H, D)
        self_kv[:, slots, :, lengths] = qkv[:, :, 1:].permute(0, 2, 3, 1, 4)  # [B, 2, H, K, D]
        past = self_kv[:, :B, :, : mask.shape[-1] // K].flatten(3, 4)  # [2, B, H, T*K, D]
        attended = _attention(qkv[:, :, 0].transpose(1, 2), past[0], past[1], mask)
        return _add_linear(x, attended.transpose(1, 2).reshape(B * K, H * D), layer.out)

    def _add_cross_attention(
        self, x: Tensor, layer: DecoderLayer, cross_kv: Tensor, mask: Tensor
    ) -> Tensor:
        """Shapes: x [B*K, E]; cross_kv [2, B, H, S, D]."""
        B, H, _, D = cross_kv.shape[1:]
        S = mask.shape[-1]
        q = _linear(_norm(x, layer.cross_norm), layer.cross_q).view(B, -1, H, D).transpose(1, 2)
        attended = _attention(q, cross_kv[0, :, :, :S], cross_kv[1, :, :, :S], mask)
        attended = attended.transpose(1, 2).reshape(x.shape[0], H * D)
        return _add_linear(x, attended, layer.cross_out)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(D) + mask) v, softmax in fp32.

    Shapes: q [B, H, Q, D]; k, v [B, H, S, D]; mask [B, 1, Q or 1, S] additive fp32
    """
    B, H, Q, D = q.shape
    q = q.reshape(B * H, Q, D)
    scores = torch.bmm(q, _merged(k).transpose(1, 2)).float().view(B, H, Q, -1)
    scores = scores.mul_(D**-0.5).add_(mask)
    weights = torch.softmax(scores, dim=-1).to(v.dtype).view(B * H, Q, -1)
    return torch.bmm(weights, _merged(v)).view(B, H, Q, D)


def _merged(x: Tensor) -> Tensor:
    """Return [B, H, S, D] as [B*H, S, D] without a copy, though S may be cut from a wider cache."""
    B, H, S, D = x.shape
    if x.stride(0) != H * x.stride(1):
        return x.reshape(B * H, S, D)
    return x.as_strided((B * H, S, D), (x.stride(1), x.stride(2), x.stride(3)))


def _self_mask(cache: DecoderCache, B: int, num_positions: int) -> Tensor:
    """Return 0 where a beam's own past lies and -inf elsewhere. Shapes: [B, 1, K, T*K]."""
    device = cache.lengths.device
    rows = cache.beam_rows[:B, :, :num_positions]  # [B, K, T]
    is_own = rows.unsqueeze(-1) == torch.arange(cache.beam_size, device=device)  # [B, K, T, K]
    position = torch.arange(num_positions, device=device)
    is_past = position <= cache.lengths[:B, None]  # [B, T]
    is_own &= is_past[:, None, :, None]
    mask = torch.zeros(is_own.shape, device=device).masked_fill_(~is_own, -math.inf)
    return mask.flatten(2).unsqueeze(1)


def _cross_mask(cache: DecoderCache, B: int) -> Tensor:
    """Return 0 at real source tokens and -inf elsewhere. Shapes: [B, 1, 1, S]."""
    lengths = cache.source_lengths[:B]
    position = torch.arange(int(lengths.max()), device=lengths.device)
    is_padding = position >= lengths[:, None]
    mask = torch.zeros(is_padding.shape, device=lengths.device)
    return mask.masked_fill_(is_padding, -math.inf)[:, None, None, :]


def _add_feed_forward(x: Tensor, layer: EncoderLayer | DecoderLayer) -> Tensor:
    hidden = _linear(_norm(x, layer.ffn_norm), layer.fc1).relu_()
    return _add_linear(x, hidden, layer.fc2)


def _add_linear(x: Tensor, y: Tensor, linear: Linear) -> Tensor:
    """Return x + linear(y), in x's memory. Shapes: x [N, out]; y [N, in]."""
    if x.dtype == torch.float32:
        return x.add_(linear.bias).addmm_(y, linear.weight.t())
    # In half precision the product is rounded before it is added, as checkpoints expect.
    return x.add_(_linear(y, linear))


def _linear(x: Tensor, linear: Linear) -> Tensor:
    return functional.linear(x, linear.weight, linear.bias)


def _norm(x: Tensor, norm: Norm) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, 1e-5)
