"""Which devices run the model, in which number format, with how much of their memory."""

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from nllb_cli.engine.engine import PlainEngine
from nllb_cli.engine.workers import EnginePool
from nllb_cli.errors import DeviceError, UsageError
from nllb_cli.model.config import ModelConfig, read_config
from nllb_cli.model.parameters import Parameters
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions, EngineOptions
from nllb_cli.records import Engine

_RESERVE_BYTES = 384 << 20
"""Left free for what is not ours to plan: libraries' work space, kernels, graphs, odd blocks."""
_SHORT_TARGET = 127
"""Token limit of the shallowest slots; deeper ones are asked for when a row needs them."""
_OLDEST = (7, 0)  # what Triton compiles for
_WITH_BFLOAT16 = (8, 0)
_log = logging.getLogger("nllb")


@dataclass(frozen=True, slots=True)
class Place:
    """A device and the number format that the model has there."""

    device: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the model runs: one place, or one process each; and what a person should know."""

    places: tuple[Place, ...]
    notes: tuple[str, ...] = ()


def choose_places(options: EngineOptions) -> Placement:
    """Return what `auto`, `all` and lists of devices stand for.

    Raises:
        UsageError: a name that is none
        DeviceError: a device that is not here, or cannot run the model
    """
    num_gpus, reason = _count_gpus()
    notes = []
    if options.device == "auto" and not num_gpus and torch.version.cuda is not None and reason:
        notes.append(f"running on the CPU: {reason}")
    devices = _resolve(options.device, num_gpus, reason)
    dtype = options.dtype
    if dtype == "auto":
        dtype = "float32" if devices[0] == "cpu" else "bfloat16"
    for device in devices:
        if device == "cpu" or not _lacks_bfloat16(device):
            continue
        if options.dtype == "auto" and dtype == "bfloat16":
            name = torch.cuda.get_device_name(device)
            notes.append(f"{device} ({name}) has no bfloat16: running in float16")
            dtype = "float16"  # on all of them: a text must not depend on who translates it
        elif dtype == "bfloat16":
            raise DeviceError(f"--dtype bfloat16: {device} has none; choose float16 or float32")
    return Placement(tuple(Place(device, dtype) for device in devices), tuple(notes))


def _count_gpus() -> tuple[int, str]:
    """Return how many GPUs can be used, and why there is none."""
    if torch.version.cuda is None:
        return 0, "this PyTorch is built without CUDA"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    reason = " ".join(str(caught[0].message).split())[:160] if caught else ""
    return count, "" if count else reason or "no NVIDIA GPU is visible"


def _resolve(asked: str, num_gpus: int, reason: str) -> list[str]:
    """Return the names of the devices, cpu or cuda:N."""
    if asked == "auto":
        return ["cuda:0" if num_gpus else "cpu"]
    if asked == "all":
        if not num_gpus:
            raise DeviceError(f"--devices all: no usable GPU ({reason}); --device cpu needs none")
        return [f"cuda:{index}" for index in range(num_gpus)]
    devices = []
    for name in asked.split(","):
        kind, colon, index = name.strip().partition(":")
        is_gpu = kind == "cuda" and (not colon or index.isdecimal())
        if not is_gpu and (kind != "cpu" or colon):
            raise UsageError(
                f"--device {asked}: choose auto, cpu, cuda or cuda:N; several with commas, or all"
            )
        if is_gpu and not num_gpus:
            raise DeviceError(f"--device {name}: no usable GPU ({reason}); --device cpu needs none")
        if is_gpu and int(index or 0) >= num_gpus:
            raise DeviceError(f"--device {name}: the last GPU here is cuda:{num_gpus - 1}")
        devices.append(f"cuda:{int(index or 0)}" if is_gpu else "cpu")
    kinds = {device[:4] for device in devices}
    if len(kinds) > 1:
        raise UsageError(f"--devices {asked}: choose GPUs or the CPU, not both")
    if kinds == {"cuda"} and len(set(devices)) < len(devices):
        raise UsageError(f"--devices {asked}: a GPU is named twice")
    return devices


def _lacks_bfloat16(device: str) -> bool:
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        name = torch.cuda.get_device_name(device)
        raise DeviceError(
            f"{device} ({name}) is too old: compute capability {'.'.join(map(str, capability))}, "
            f"{'.'.join(map(str, _OLDEST))} is needed; use --device cpu"
        )
    return capability < _WITH_BFLOAT16


def load_model(
    directory: Path,
    place: Place,
    decode: DecodeOptions,
    options: EngineOptions,
    num_tokens: int = 0,
) -> Parameters:
    """Load the weights to where they stay, after a look whether they fit.

    Raises:
        DeviceError: they do not
        ModelError: they are damaged, or have no rows for `num_tokens` ids of a tokeniser
    """
    device, dtype = torch.device(place.device), getattr(torch, place.dtype)
    if device.type == "cpu":
        return load_parameters(directory, device, dtype, num_tokens)
    _check_fit(read_config(directory), device, dtype, decode.beam_size, options)
    try:
        return load_parameters(directory, device, dtype, num_tokens)
    except torch.OutOfMemoryError as error:
        text = str(error).split(". ")[0]
        raise DeviceError(
            f"{place.device}: out of memory while the weights were loaded ({text}); "
            "free the device from other programs or use --device cpu"
        ) from None


def make_engine(
    parameters: Parameters, decode: DecodeOptions, options: EngineOptions, num_tokens: int
) -> Engine:
    """Return the engine for where the weights are: slots on a GPU, plain PyTorch on a CPU.

    Ids from `num_tokens` on have no text and are never produced.
    """
    device = parameters.lm_head.device
    if device.type == "cpu" or not _has_triton():
        if device.type != "cpu":
            _log.warning("Triton is not installed, so %s runs much below its speed", device)
        return PlainEngine(parameters, decode, num_tokens, options.max_batch_rows)
    # Triton comes with these, and a CPU need not wait for it
    from nllb_cli.engine.sizes import SlotPlan
    from nllb_cli.engine.slot_engine import SlotEngine

    config, dtype = parameters.config, parameters.lm_head.dtype
    available = _available_bytes(device, options.gpu_memory)
    taken = torch.cuda.memory_allocated(device) + _rough_bytes(config, device, dtype)
    plan = SlotPlan(
        config=config,
        beam_size=decode.beam_size,
        item_bytes=dtype.itemsize,
        budget_bytes=available - taken,
        max_batch_rows=options.max_batch_rows,
    )
    return SlotEngine(parameters, decode, num_tokens, plan)


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def make_pool(
    directory: Path,
    places: Sequence[Place],
    decode: DecodeOptions,
    options: EngineOptions,
    num_tokens: int,
) -> EnginePool:
    """Return an engine of one process a place; the CPU's cores are shared out evenly."""
    num_threads = max(torch.get_num_threads() // len(places), 1)
    makers = []
    for number, place in enumerate(places, 1):
        name = f"cpu ({number} of {len(places)})" if place.device == "cpu" else place.device
        maker = partial(
            open_engine, directory, place, decode, options, num_tokens, num_threads=num_threads
        )
        makers.append((name, maker))
    return EnginePool(makers)


def open_engine(
    directory: Path,
    place: Place,
    decode: DecodeOptions,
    options: EngineOptions,
    num_tokens: int,
    *,
    num_threads: int,
) -> tuple[Engine, list[str]]:
    """Load the model at a place; return an engine there, and the checkpoint's notes."""
    torch.set_num_threads(num_threads)
    parameters = load_model(directory, place, decode, options, num_tokens)
    return make_engine(parameters, decode, options, num_tokens), parameters.notes


def _available_bytes(device: torch.device, share: float) -> int:
    """Return what this process may take in all, with what it has taken already."""
    free, _ = torch.cuda.mem_get_info(device)
    return int((free + torch.cuda.memory_reserved(device)) * share) - _RESERVE_BYTES


def _check_fit(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    beam_size: int,
    options: EngineOptions,
) -> None:
    """Refuse a model whose weights and one slot do not fit, before anything is loaded."""
    from nllb_cli.engine.sizes import SlotPlan, in_gib, weight_bytes

    plan = SlotPlan(config, beam_size, dtype.itemsize, budget_bytes=0)
    weights = weight_bytes(config, dtype.itemsize) + _rough_bytes(config, device, dtype)
    slots = plan.needed_bytes(plan.smallest(_SHORT_TARGET))
    available = _available_bytes(device, options.gpu_memory)
    if weights + slots > available:
        raise DeviceError(
            f"the model does not fit on {device}: {in_gib(weights + slots)} needed "
            f"({in_gib(weights)} of weights), {in_gib(available)} available; free the device from "
            "other programs, raise --gpu-memory or use --device cpu"
        )


def _rough_bytes(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> int:
    """Return what the eight-bit copy of lm_head takes, where the engine will have one."""
    from nllb_cli.engine.vocabulary import can_search_in_eight_bits

    if not can_search_in_eight_bits(device, dtype):
        return 0
    return config.padded_vocab_size * (config.d_model + 4)
