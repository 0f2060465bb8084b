"""Checkpoint tensors to our names: projections fused, in the final dtype, on the device."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from nllb_cli.errors import ModelError
from nllb_cli.model.checkpoint import StoredTensor, open_checkpoint
from nllb_cli.model.config import ModelConfig, read_config
from nllb_cli.model.parameters import DecoderLayer, EncoderLayer, Linear, Norm, Parameters

SHARED = "model.shared.weight"
SOURCE = "model.encoder.embed_tokens.weight"
TARGET = "model.decoder.embed_tokens.weight"
HEAD = "lm_head.weight"
EMBEDDINGS = (SHARED, HEAD, TARGET, SOURCE)  # transformers looks for a lost `shared` in this order
# Leftovers of fairseq and of old transformers. The position table is a pure function of its shape.
IGNORED = re.compile(
    r"model\.(encoder|decoder)\.(version|embed_positions\.(weights|_float_tensor))"
    r"|model\.decoder\.output_projection\.weight"
)
# What a tensor's name tells about its file.
FOREIGN_NAMES = (
    (r"\.ffn\.(experts|router)\.", "NLLB-MoE, a mixture of experts, is not supported"),
    (r"lora_|\bbase_model\.", "has unmerged adapter weights: merge them, or give the base model"),
    (r"\.(SCB|weight_format|absmax|quant_map|quant_state)\b", "quantised by bitsandbytes"),
    (r"\.(qweight|qzeros|scales|g_idx)$", "quantised (GPTQ or AWQ)"),
    (r"layernorm_embedding|embed_positions\.weight$", "a BART or mBART model"),
)
REMEDY = "--model takes an NLLB-200 (dense) or M2M-100 checkpoint with float weights"


def load_parameters(
    directory: Path, device: torch.device, dtype: torch.dtype, num_tokens: int = 0
) -> Parameters:
    """Return a checkpoint's tensors on `device` in `dtype`, fused and padded.

    The files are memory-mapped and copied slice by slice to where they stay: no second whole
    copy on the host. What a person should know about the checkpoint stands in `notes`.
    The tokeniser's `num_tokens` ids must have rows in the embedding; further rows do no harm.
    """
    config = read_config(directory)
    stored = _known_tensors(directory, open_checkpoint(directory))
    notes: list[str] = []
    config = _fit_vocabulary(directory, config, stored, notes)
    _check_tensors(directory, config, stored)
    if config.vocab_size < num_tokens:
        raise ModelError(
            f"{directory}: the tokeniser has {num_tokens:,} tokens, the weights have only "
            f"{config.vocab_size:,} rows for them; use the tokeniser files that were saved with "
            "these weights"
        )
    if config.decoder_start_id != config.eos_id:
        notes.append(
            f"{directory}: the decoder starts with token {config.decoder_start_id} instead of "
            f"</s> ({config.eos_id}), as its configuration says"
        )
    loader = _Loader(directory, stored, device, dtype)
    with torch.no_grad():
        parameters = _build(loader, config, notes)
        loader.check_finite()
    return parameters


def _canonical(name: str) -> str:
    """Return a tensor's name without what DataParallel, torch.compile or a bare model changed."""
    parts = [part for part in name.split(".") if part != "_orig_mod"]
    while len(parts) > 1 and parts[0] == "module":
        parts = parts[1:]
    if parts and parts[0] in ("encoder", "decoder", "shared"):
        parts = ["model", *parts]
    return ".".join(parts)


def _known_tensors(directory: Path, stored: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors under canonical names, without those that are ignored on purpose."""
    known: dict[str, StoredTensor] = {}
    for stored_name, tensor in stored.items():
        name = _canonical(stored_name)
        if IGNORED.fullmatch(name) or (name == "final_logits_bias" and _is_zero(tensor)):
            continue
        if name in known:
            raise ModelError(
                f"{directory}: two tensors are called {name} once their prefixes are off; save "
                "the model once more"
            )
        known[name] = tensor
    return known


def _is_zero(tensor: StoredTensor) -> bool:
    return isinstance(tensor.dtype, torch.dtype) and not tensor.read().any()


def _fit_vocabulary(
    directory: Path, config: ModelConfig, stored: dict[str, StoredTensor], notes: list[str]
) -> ModelConfig:
    """Return the config with the number of rows that the embeddings really have."""
    shapes = {name: stored[name].shape for name in EMBEDDINGS if name in stored}
    if not shapes:
        _refuse_foreign_names(directory, stored)
        raise ModelError(f"{directory}: no embedding ({SHARED}) in its weights; {REMEDY}")
    rows = {shape[0] if len(shape) == 2 else None for shape in shapes.values()}
    if len(rows) > 1:
        sizes = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ModelError(f"{directory}: the embeddings differ in size ({sizes}); {REMEDY}")
    num_rows = rows.pop()
    if num_rows is None or num_rows == config.vocab_size:
        return config
    if num_rows <= max(config.bos_id, config.pad_id, config.eos_id, config.decoder_start_id):
        raise ModelError(f"{directory}: an embedding of {num_rows} rows is too small; {REMEDY}")
    notes.append(
        f"{directory}: config.json says vocab_size {config.vocab_size}, the weights have "
        f"{num_rows} rows; the weights count"
    )
    return replace(config, vocab_size=num_rows)


def _expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each tensor that must be there, the embeddings aside."""
    E = config.d_model
    for side, num_layers, F in (
        ("encoder", config.encoder_layers, config.encoder_ffn),
        ("decoder", config.decoder_layers, config.decoder_ffn),
    ):
        attentions = ["self_attn"] if side == "encoder" else ["self_attn", "encoder_attn"]
        products = [(f"{a}.{p}_proj", E, E) for a in attentions for p in ("q", "k", "v", "out")]
        products += [("fc1", F, E), ("fc2", E, F)]
        norms = [f"{name}_layer_norm" for name in (*attentions, "final")]
        for index in range(num_layers):
            prefix = f"model.{side}.layers.{index}"
            for name, num_out, num_in in products:
                yield f"{prefix}.{name}.weight", (num_out, num_in)
                yield f"{prefix}.{name}.bias", (num_out,)
            for name in norms:
                yield f"{prefix}.{name}.weight", (E,)
                yield f"{prefix}.{name}.bias", (E,)
        yield f"model.{side}.layer_norm.weight", (E,)
        yield f"model.{side}.layer_norm.bias", (E,)


def _check_tensors(directory: Path, config: ModelConfig, stored: dict[str, StoredTensor]) -> None:
    """Refuse missing, extra and misshapen tensors, and those that are no floats."""
    expected = dict(_expected_shapes(config))
    expected |= {name: (config.vocab_size, config.d_model) for name in EMBEDDINGS if name in stored}
    missing = [name for name in expected if name not in stored]
    extra = [name for name in stored if name not in expected]
    if missing or extra:
        _refuse_foreign_names(directory, stored)
    if missing:
        raise ModelError(f"{directory}: {_several(missing)} missing from its weights; {REMEDY}")
    if extra:
        raise ModelError(
            f"{directory}: {_several(extra)} unknown to the model that config.json describes; "
            f"{REMEDY}"
        )
    for name, shape in expected.items():
        tensor = stored[name]
        if not isinstance(tensor.dtype, torch.dtype):
            raise ModelError(
                f"{directory}: {name} is {tensor.dtype}, quantised or no weight at all; {REMEDY}"
            )
        if tensor.shape != shape:
            raise ModelError(
                f"{directory}: {name} has shape {list(tensor.shape)}, config.json asks for "
                f"{list(shape)}; {REMEDY}"
            )


def _several(names: list[str]) -> str:
    return f"{len(names)} tensors ({names[0]}, …) are" if len(names) > 1 else f"{names[0]} is"


def _refuse_foreign_names(directory: Path, stored: dict[str, StoredTensor]) -> None:
    for pattern, kind in FOREIGN_NAMES:
        name = next((name for name in stored if re.search(pattern, name)), None)
        if name is not None:
            raise ModelError(f"{directory}: {kind} (it has {name}); {REMEDY}")


@dataclass(slots=True)
class _Loader:
    """Copies stored tensors into fresh ones on the device."""

    directory: Path
    stored: dict[str, StoredTensor]
    device: torch.device
    dtype: torch.dtype
    extremes: dict[str, Tensor] = field(default_factory=dict)
    """Smallest and greatest value of each tensor, on the device: read once, at the end."""

    def stack(self, names: list[str], num_rows: int | None = None) -> Tensor:
        """Return tensors one below the other, with zero rows up to `num_rows`."""
        first = self.stored[names[0]].shape
        filled = sum(self.stored[name].shape[0] for name in names)
        shape = (num_rows or filled, *first[1:])
        result = torch.empty(shape, device=self.device, dtype=self.dtype)
        result[filled:] = 0
        end = 0
        for name in names:
            start, end = end, end + self.stored[name].shape[0]
            rows = result[start:end]
            rows.copy_(self.stored[name].read())
            self.extremes[name] = torch.stack(torch.aminmax(rows))
        return result

    def linear(self, *names: str) -> Linear:
        """Return one projection, or several as one."""
        return Linear(
            weight=self.stack([f"{name}.weight" for name in names]),
            bias=self.stack([f"{name}.bias" for name in names]),
        )

    def norm(self, name: str) -> Norm:
        """Return a layer norm."""
        return Norm(self.stack([f"{name}.weight"]), self.stack([f"{name}.bias"]))

    def check_finite(self) -> None:
        """Refuse NaN and infinity, in the files or from a dtype that is too narrow."""
        is_finite = torch.stack(list(self.extremes.values())).isfinite().all(dim=1).tolist()
        bad = [name for name, good in zip(self.extremes, is_finite, strict=True) if not good]
        if not bad:
            return
        if all(self.stored[name].read().isfinite().all() for name in bad):
            name = str(self.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self.directory}: {_several(bad)} too large for {name}; use --dtype bfloat16 or "
                "float32"
            )
        raise ModelError(
            f"{self.directory}: {_several(bad)} damaged (NaN or infinity); download or train the "
            "model again"
        )


def _build(loader: _Loader, config: ModelConfig, notes: list[str]) -> Parameters:
    source_embedding, target_embedding, lm_head = _embeddings(loader, config, notes)
    decoder = [f"model.decoder.layers.{index}" for index in range(config.decoder_layers)]
    return Parameters(
        config=config,
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        lm_head=lm_head,
        encoder_layers=[
            _encoder_layer(loader, f"model.encoder.layers.{index}")
            for index in range(config.encoder_layers)
        ],
        encoder_norm=loader.norm("model.encoder.layer_norm"),
        decoder_layers=[_decoder_layer(loader, prefix) for prefix in decoder],
        decoder_norm=loader.norm("model.decoder.layer_norm"),
        cross_kv=loader.linear(
            *(f"{prefix}.encoder_attn.{part}_proj" for prefix in decoder for part in "kv")
        ),
        notes=notes,
    )


def _encoder_layer(loader: _Loader, prefix: str) -> EncoderLayer:
    return EncoderLayer(
        self_norm=loader.norm(f"{prefix}.self_attn_layer_norm"),
        qkv=loader.linear(*(f"{prefix}.self_attn.{part}_proj" for part in "qkv")),
        out=loader.linear(f"{prefix}.self_attn.out_proj"),
        ffn_norm=loader.norm(f"{prefix}.final_layer_norm"),
        fc1=loader.linear(f"{prefix}.fc1"),
        fc2=loader.linear(f"{prefix}.fc2"),
    )


def _decoder_layer(loader: _Loader, prefix: str) -> DecoderLayer:
    return DecoderLayer(
        self_norm=loader.norm(f"{prefix}.self_attn_layer_norm"),
        qkv=loader.linear(*(f"{prefix}.self_attn.{part}_proj" for part in "qkv")),
        out=loader.linear(f"{prefix}.self_attn.out_proj"),
        cross_norm=loader.norm(f"{prefix}.encoder_attn_layer_norm"),
        cross_q=loader.linear(f"{prefix}.encoder_attn.q_proj"),
        cross_out=loader.linear(f"{prefix}.encoder_attn.out_proj"),
        ffn_norm=loader.norm(f"{prefix}.final_layer_norm"),
        fc1=loader.linear(f"{prefix}.fc1"),
        fc2=loader.linear(f"{prefix}.fc2"),
    )


def _embeddings(
    loader: _Loader, config: ModelConfig, notes: list[str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return source embedding, target embedding and lm_head: one tensor wherever they are equal.

    As transformers 5 does: an absent one is tied, and what the file has is kept even if
    config.json calls the embeddings tied.
    """
    present = [name for name in EMBEDDINGS if name in loader.stored]
    if not config.is_tied and HEAD in present:
        present = [*(name for name in present if name != HEAD), HEAD]
    elif not config.is_tied:
        raise ModelError(
            f"{loader.directory}: no {HEAD}, and config.json says that it is not the embedding "
            "(tie_word_embeddings false); set that to true if it is"
        )
    loaded: dict[str, Tensor] = {}
    for role in (SOURCE, TARGET, HEAD):
        name = role if role in present else present[0]
        if name not in loaded:
            twin = next((other for other in loaded if _are_equal(loader, name, other)), None)
            loaded[name] = (
                loader.stack([name], config.padded_vocab_size) if twin is None else loaded[twin]
            )
        loaded[role] = loaded[name]
    result = loaded[SOURCE], loaded[TARGET], loaded[HEAD]
    if config.is_tied and len({tensor.data_ptr() for tensor in result}) > 1:
        notes.append(
            f"{loader.directory}: config.json says that the embeddings are one, the weights have "
            "several that differ; each is used as it is"
        )
    return result


def _are_equal(loader: _Loader, name: str, other: str) -> bool:
    if other not in loader.stored:
        return False
    a, b = loader.stored[name].read(), loader.stored[other].read()
    return a.dtype == b.dtype and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))
