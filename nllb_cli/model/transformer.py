"""The encoder-decoder's forward maths on plain tensors; the cache is an argument."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from nllb_cli.model.cache import DecoderCache, Step
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
        """Run the next token of all beams of the first B slots; their keys go into the cache.

        `num_positions` is what the longest of them has in the cache after this step.
        Shapes: tokens [B, K] int64; returns [B, K, E] after the last norm
        """
        hidden = self.decode_steps([cache.beam_step(tokens, num_positions)], num_positions, cache)
        return hidden.view(*tokens.shape, -1)

    def decode_steps(self, steps: list[Step], num_positions: int, cache: DecoderCache) -> Tensor:
        """Run several steps in one pass; each brings its new tokens' keys into the cache.

        `num_positions` is the highest position among them, from 1.
        Shapes: returns [R, E] after the last norm, R rows for the tokens of all steps
        """
        table = self.positions.rows(num_positions)
        tokens = torch.cat([step.tokens.flatten() for step in steps])
        # A produced padding token has no position, as in the checkpoints' own code.
        position = torch.cat(
            [(step.positions + 1).expand_as(step.tokens).flatten() for step in steps]
        )
        position *= tokens != self.config.pad_id
        x = functional.embedding(tokens, self.parameters.target_embedding) * self._scale
        x += functional.embedding(position, table)
        for index, layer in enumerate(self.parameters.decoder_layers):
            qkv = _linear(_norm(x, layer.self_norm), layer.qkv)
            attended = torch.empty_like(x)
            for step, rows, out in zip(
                steps, _split(qkv, steps), _split(attended, steps), strict=True
            ):
                self._attend_self(step, rows, cache.self_kv[index], out)
            x = _add_linear(x, attended, layer.out)
            q = _linear(_norm(x, layer.cross_norm), layer.cross_q)
            attended = torch.empty_like(x)
            for step, rows, out in zip(
                steps, _split(q, steps), _split(attended, steps), strict=True
            ):
                self._attend_source(step, rows, cache.cross_kv[index], out)
            x = _add_linear(x, attended, layer.cross_out)
            x = _add_feed_forward(x, layer)
        return _norm(x, self.parameters.decoder_norm)

    def _attend_self(self, step: Step, qkv: Tensor, self_kv: Tensor, out: Tensor) -> None:
        """Shapes: qkv [B*Q, 3E]; self_kv [2, B', H, T, K, D]; out [B*Q, E]."""
        (B, Q), (H, _, K, D) = step.tokens.shape, self_kv.shape[2:]
        qkv = qkv.view(B, Q, 3, H, D)
        slots = self_kv[:, step.first : step.first + B]
        slot = torch.arange(B, device=qkv.device)[:, None]
        slots[:, slot, :, step.times, step.rows] = qkv[:, :, 1:]  # [B, Q, 2, H, D]
        T = step.self_mask.shape[-1] // K
        past = slots[:, :, :, :T].flatten(3, 4)  # [2, B, H, T*K, D]
        _attention(qkv[:, :, 0], past, step.self_mask, out.view(B, Q, H, D))

    def _attend_source(self, step: Step, q: Tensor, cross_kv: Tensor, out: Tensor) -> None:
        """Shapes: q [B*Q, E]; cross_kv [2, B', H, S, D]; out [B*Q, E]."""
        (B, Q), (H, _, D) = step.tokens.shape, cross_kv.shape[2:]
        S = step.cross_mask.shape[-1]
        source = cross_kv[:, step.first : step.first + B, :, :S]
        _attention(q.view(B, Q, H, D), source, step.cross_mask, out.view(B, Q, H, D))


def _split(x: Tensor, steps: list[Step]) -> tuple[Tensor, ...]:
    """Return each step's rows of x."""
    return torch.split(x, [step.tokens.numel() for step in steps])


def _attention(q: Tensor, kv: Tensor, mask: Tensor, out: Tensor) -> None:
    """Write softmax(q k^T / sqrt(D) + mask) v into `out`; the softmax is in fp32.

    Shapes: q, out [B, Q, H, D]; kv [2, B, H, S, D]; mask [B or 1, 1, Q or 1, S]
    """
    B, Q, H, D = q.shape
    q = q.transpose(1, 2).reshape(B * H, Q, D)
    scores = torch.bmm(q, _merged(kv[0]).transpose(1, 2)).float().view(B, H, Q, -1)
    scores = scores.mul_(D**-0.5).add_(mask)
    weights = torch.softmax(scores, dim=-1).to(q.dtype).view(B * H, Q, -1)
    out.copy_(torch.bmm(weights, _merged(kv[1])).view(B, H, Q, D).transpose(1, 2))


def _merged(x: Tensor) -> Tensor:
    """Return [B, H, S, D] as [B*H, S, D] without a copy, though S may be cut from a wider cache."""
    B, H, S, D = x.shape
    if x.stride(0) != H * x.stride(1):
        return x.reshape(B * H, S, D)
    return x.as_strided((B * H, S, D), (x.stride(1), x.stride(2), x.stride(3)))


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
