"""Packed encoding and the decode step over slots: the model's forward maths on our kernels."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from nllb_cli.engine.slots import Slots
from nllb_cli.engine.vocabulary import Vocabulary
from nllb_cli.kernels.admission import admit
from nllb_cli.kernels.cross_attention import cross_decode_attention
from nllb_cli.kernels.encoder_attention import encoder_attention
from nllb_cli.kernels.norm import add_layer_norm, embed_layer_norm
from nllb_cli.kernels.search import beam_step, num_candidates
from nllb_cli.kernels.self_attention import self_decode_attention
from nllb_cli.model.parameters import Linear, Norm, Parameters
from nllb_cli.model.transformer import FP16_LIMIT, PositionTable


class SlotModel:
    """Encoder, prefill and decode step for `Slots`."""

    def __init__(
        self,
        parameters: Parameters,
        slots: Slots,
        vocabulary: Vocabulary,
        powers: Tensor,
        stopping: int,
        positions: PositionTable,
    ) -> None:
        """Shapes: powers [T + 1] fp32: length^alpha."""
        self.parameters, self.config, self.slots = parameters, parameters.config, slots
        self._vocabulary = vocabulary
        self._powers = powers
        self._rule = (self.config.eos_id, self.config.pad_id, stopping)
        self._scale = math.sqrt(self.config.d_model) if self.config.scale_embedding else 1.0
        self._positions = positions
        # One table for every step: a captured graph holds its address.
        self._target_positions = positions.rows(slots.shape.num_positions + 1)

    @torch.inference_mode()
    def encode(self, tokens: Tensor, lengths: list[int], first_row: int) -> None:
        """Encode packed sentences and write what the decoder reads of them to the pool.

        Rows first_row … + N are their keys and values, the B rows after these their start tokens'.
        Shapes: tokens [N] int32 on the device, N = sum(lengths)
        """
        N, B = len(tokens), len(lengths)
        device = tokens.device
        length = torch.tensor(lengths, dtype=torch.int32)
        starts = functional.pad(length.cumsum(0), (1, 0)).to(torch.int32)
        packed = torch.cat((length, starts))
        if device.type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
        length, starts = packed[:B], packed[B:]
        row = torch.arange(1, N + 1, dtype=torch.int32, device=device)
        offset = torch.repeat_interleave(starts[:-1], length, output_size=N)
        output = self._encoder_output(tokens, row - offset, starts, max(lengths))
        pool = self.slots.pool.flatten(1)  # [P, L*2*E]
        cross_kv = self.parameters.cross_kv
        torch.addmm(cross_kv.bias, output, cross_kv.weight.T, out=pool[first_row : first_row + N])
        self._prefill(starts[:-1] + first_row, length, first_row + N)

    def _encoder_output(
        self, tokens: Tensor, position_rows: Tensor, starts: Tensor, max_length: int
    ) -> Tensor:
        """Shapes: tokens, position_rows [N]; starts [B + 1]; result [N, E]."""
        layers, config = self.parameters.encoder_layers, self.config
        x, normed = embed_layer_norm(
            tokens,
            position_rows,
            self.parameters.source_embedding,
            self._positions.rows(max_length),
            self._scale,
            layers[0].self_norm.weight,
            layers[0].self_norm.bias,
        )
        norms = [layer.self_norm for layer in layers[1:]] + [self.parameters.encoder_norm]
        for layer, next_norm in zip(layers, norms, strict=True):
            qkv = _linear(normed, layer.qkv)
            attended = encoder_attention(qkv, starts, max_length, config.encoder_heads)
            normed = _add_norm(x, _linear(attended, layer.out), layer.ffn_norm)
            delta = _linear(_relu_linear(normed, layer.fc1), layer.fc2)
            if x.dtype == torch.float16:
                x.add_(delta).clamp_(-FP16_LIMIT, FP16_LIMIT)
                normed = _add_norm(x, None, next_norm)
            else:
                normed = _add_norm(x, delta, next_norm)
        return normed

    def _prefill(self, starts: Tensor, lengths: Tensor, first_row: int) -> None:
        """Run the decoder's start token of each sentence, keep its self-attention keys, values."""
        B, E, slots = len(starts), self.config.d_model, self.slots
        layers = self.parameters.decoder_layers
        places = torch.arange(B, dtype=torch.int32, device=starts.device)
        start_tokens = torch.full_like(places, self.config.decoder_start_id)
        x, normed = embed_layer_norm(
            start_tokens,
            torch.ones_like(places),
            self.parameters.target_embedding,
            self._target_positions,
            self._scale,
            layers[0].self_norm.weight,
            layers[0].self_norm.bias,
        )
        rows = slots.pool[first_row : first_row + B]  # [B, L, 2, H, D]
        for index, layer in enumerate(layers):
            qkv = _linear(normed, layer.qkv)
            rows[:, index].copy_(qkv[:, E:].view(B, 2, *rows.shape[3:]))
            if index + 1 == len(layers):
                return
            # A softmax over one key is 1: attention returns the value.
            normed = _add_norm(x, _linear(qkv[:, 2 * E :], layer.out), layer.cross_norm)
            keys, values = slots.keys(index), slots.values(index)
            query = _linear(normed, layer.cross_q)
            attended = cross_decode_attention(query, keys, values, starts, lengths, places, 1)
            normed = _add_norm(x, _linear(attended, layer.cross_out), layer.ffn_norm)
            delta = _linear(_relu_linear(normed, layer.fc1), layer.fc2)
            normed = _add_norm(x, delta, layers[index + 1].self_norm)

    @torch.inference_mode()
    def step(self, n: int) -> None:
        """Take the first `n` places of the batch one token further; no value leaves the device."""
        slots, K = self.slots, self.slots.shape.beam_size
        io = slots.io(n)
        hidden = self._decoder_output(n)
        rows = slice(0, n * K)
        tiles = (slots.relative[rows], slots.tile_max[rows], slots.tile_sum[rows])
        scores = self._vocabulary.best(hidden, tiles, num_candidates(K))
        beam_step(slots.state, slots.outbox, io, scores, self._powers, self._rule)
        admit(slots.state, slots.source, slots.queue, io)

    def _decoder_output(self, n: int) -> Tensor:
        """Shapes: result [n*K, E]."""
        slots, K = self.slots, self.slots.shape.beam_size
        io, state, source = slots.io(n), slots.state, slots.source
        layers = self.parameters.decoder_layers
        x, normed = embed_layer_norm(
            io.next_tokens,
            io.positions,
            self.parameters.target_embedding,
            self._target_positions,
            self._scale,
            layers[0].self_norm.weight,
            layers[0].self_norm.bias,
        )
        norms = [layer.self_norm for layer in layers[1:]] + [self.parameters.decoder_norm]
        for index, (layer, next_norm) in enumerate(zip(layers, norms, strict=True)):
            keys, values = slots.keys(index), slots.values(index)
            attended = self_decode_attention(
                _linear(normed, layer.qkv),
                slots.k_cache[index],
                slots.v_cache[index],
                state.indirection,
                state.length,
                keys,
                values,
                source.prefix,
                io.slot_ids,
                K,
            )
            normed = _add_norm(x, _linear(attended, layer.out), layer.cross_norm)
            attended = cross_decode_attention(
                _linear(normed, layer.cross_q),
                keys,
                values,
                source.start,
                source.length,
                io.slot_ids,
                K,
            )
            normed = _add_norm(x, _linear(attended, layer.cross_out), layer.ffn_norm)
            delta = _linear(_relu_linear(normed, layer.fc1), layer.fc2)
            normed = _add_norm(x, delta, next_norm)
        return normed


def _linear(x: Tensor, linear: Linear) -> Tensor:
    return functional.linear(x, linear.weight, linear.bias)


def _relu_linear(x: Tensor, linear: Linear) -> Tensor:
    """The product with bias and ReLU in its epilogue where the device has one."""
    if x.is_cuda:
        return torch._addmm_activation(linear.bias, x, linear.weight.T)
    return functional.linear(x, linear.weight, linear.bias).relu_()


def _add_norm(x: Tensor, delta: Tensor | None, norm: Norm) -> Tensor:
    return add_layer_norm(x, delta, norm.weight, norm.bias)
