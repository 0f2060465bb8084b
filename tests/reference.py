"""Small random checkpoints in Hugging Face format, made by transformers: what others compare to."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import M2M100Config, M2M100ForConditionalGeneration


def make_checkpoint(
    path: Path,
    *,
    vocab_size: int = 97,
    d_model: int = 32,
    encoder_layers: int = 2,
    decoder_layers: int = 2,
    heads: int = 4,
    ffn: int = 48,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    is_tied: bool = True,
    layout: str = "safetensors",
    **config_fields,
) -> M2M100ForConditionalGeneration:
    """Write a random checkpoint into `path` and return the model that it holds.

    `layout` is safetensors, bin, sharded-safetensors or sharded-bin.
    """
    config = M2M100Config(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        tie_word_embeddings=is_tied,
        dtype=dtype,
        **config_fields,
    )
    model = M2M100ForConditionalGeneration(config).eval().to(dtype)
    randomize(model, seed)
    path.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    save_weights(path, model, layout)
    return model


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Fill all weights so that a swapped, dropped or shifted tensor changes the output.

    transformers starts biases at 0 and norms at 1, under which many mistakes do not show.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            values = 1 + 0.2 * noise
        elif weight.dim() == 1:
            values = 0.2 * noise
        elif weight.shape[0] == model.config.vocab_size:
            values = noise * model.config.d_model**-0.5
        else:
            values = noise * 1.5 * weight.shape[1] ** -0.5
        weight.data.copy_(values)


def save_weights(path: Path, model: torch.nn.Module, layout: str) -> None:
    """Write the weights as transformers does: tied keys once in safetensors, all four in .bin."""
    tensors = {name: weight.detach() for name, weight in model.state_dict().items()}
    if layout.endswith("safetensors"):
        kept = {weight.data_ptr(): name for name, weight in reversed(tensors.items())}
        tensors = {name: tensors[name].contiguous() for name in sorted(kept.values())}
    save_tensors(path, tensors, layout)


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], layout: str) -> None:
    """Write tensors under the names that transformers gives to weight files."""
    kind = layout.removeprefix("sharded-")
    stem = {"safetensors": "model", "bin": "pytorch_model"}[kind]
    save = {"safetensors": save_safetensors, "bin": torch.save}[kind]
    if not layout.startswith("sharded-"):
        save(tensors, path / f"{stem}.{kind}")
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(3):
        file = f"{stem}-{shard + 1:05}-of-00003.{kind}"
        part = {name: tensors[name] for name in names[shard::3]}
        save(part, path / file)
        weight_map |= dict.fromkeys(part, file)
    total_size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    (path / f"{stem}.{kind}.index.json").write_text(json.dumps(index))


def save_safetensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write one safetensors file as transformers marks it."""
    save_file(tensors, path, metadata={"format": "pt"})
