"""Which devices a choice stands for, what is refused and why, which engine runs where."""

import types

import pytest
import torch

from nllb_cli.engine import devices, slot_engine
from nllb_cli.engine.devices import Place, choose_places, load_model, make_engine, open_engine
from nllb_cli.engine.engine import PlainEngine
from nllb_cli.errors import DeviceError, UsageError
from nllb_cli.options import DecodeOptions, EngineOptions
from tests.engine.parity import make_segments, translate
from tests.reference import make_checkpoint

GIB = 2**30


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that GPUs of these compute capabilities are here."""

    def pretend(*capabilities, free=8 * GIB, reserved=0, warning=None):
        def is_available():
            if warning:
                import warnings

                warnings.warn(warning, stacklevel=2)
            return bool(capabilities)

        def at(device):
            return capabilities[torch.device(device).index]

        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", at)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {at(device)}")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)

    return pretend


def places(device="auto", dtype="auto"):
    return [
        (p.device, p.dtype) for p in choose_places(EngineOptions(device=device, dtype=dtype)).places
    ]


def test_auto_is_the_first_gpu_else_the_cpu(gpus):
    gpus((9, 0), (9, 0))
    assert places() == [("cuda:0", "bfloat16")]
    gpus()
    assert places() == [("cpu", "float32")]


def test_one_by_name(gpus):
    gpus((8, 0), (9, 0))
    assert places("cpu") == [("cpu", "float32")]
    assert places("cuda") == [("cuda:0", "bfloat16")]
    assert places("cuda:1", "float32") == [("cuda:1", "float32")]


def test_several(gpus):
    gpus((9, 0), (9, 0), (9, 0))
    assert [device for device, _ in places("all")] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [device for device, _ in places("cuda:2, cuda:0")] == ["cuda:2", "cuda:0"]
    assert places("cpu,cpu") == [("cpu", "float32")] * 2


def test_a_gpu_without_bfloat16_runs_float16_and_says_so(gpus):
    gpus((9, 0), (7, 5))
    found = choose_places(EngineOptions(device="cuda:1"))
    assert found.places == (Place("cuda:1", "float16"),)
    assert "cuda:1 (GPU (7, 5)) has no bfloat16" in found.notes[0]
    assert choose_places(EngineOptions(device="cuda:0")).notes == ()


def test_all_devices_have_the_same_number_format(gpus):
    gpus((9, 0), (7, 5))
    assert places("all") == [("cuda:0", "float16"), ("cuda:1", "float16")]


def test_asking_for_bfloat16_where_it_is_not_is_refused(gpus):
    gpus((7, 5))
    with pytest.raises(DeviceError, match="cuda:0 has none; choose float16"):
        places("cuda", "bfloat16")


def test_a_gpu_that_is_too_old_is_refused(gpus):
    gpus((6, 1))
    with pytest.raises(DeviceError, match=r"too old: compute capability 6\.1, 7\.0 is needed"):
        places()


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "all", "cuda:0,cuda:1"])
def test_no_gpu_is_an_error_with_its_reason(gpus, name):
    gpus(warning="The NVIDIA driver on your system is too old")
    with pytest.raises(DeviceError, match="driver on your system is too old.*--device cpu"):
        places(name)


def test_auto_says_why_it_runs_on_the_cpu(gpus):
    gpus(warning="The NVIDIA driver on your system is too old")
    found = choose_places(EngineOptions())
    assert found.places == (Place("cpu", "float32"),)
    assert "driver" in found.notes[0]


def test_a_pytorch_without_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match="built without CUDA"):
        places("cuda")
    assert choose_places(EngineOptions()).notes == ()


def test_an_index_past_the_last_gpu(gpus):
    gpus((9, 0))
    with pytest.raises(DeviceError, match="the last GPU here is cuda:0"):
        places("cuda:3")


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "cuda:",
        "cuda:x",
        "cpu:0",
        "cuda:-1",
        "",
        "cpu,",
        "cuda,cpu",
        "cuda:0,cuda",
        "auto,cpu",
    ],
)
def test_no_device_of_that_name(gpus, name):
    gpus((9, 0), (9, 0))
    with pytest.raises(UsageError, match="--device"):
        places(name)


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(tmp_path, gpus, monkeypatch):
    make_checkpoint(tmp_path)
    gpus((9, 0), free=400 << 20)
    monkeypatch.setattr(devices, "load_parameters", lambda *_: pytest.fail("loaded"))
    with pytest.raises(DeviceError) as caught:
        load_model(tmp_path, Place("cuda:0", "bfloat16"), DecodeOptions(), EngineOptions())
    text = str(caught.value)
    assert "does not fit on cuda:0" in text
    assert " GiB needed (" in text
    assert " of weights), 0.0 GiB available" in text


def test_memory_that_this_process_holds_counts_as_free(tmp_path, gpus, monkeypatch):
    make_checkpoint(tmp_path)
    gpus((9, 0), free=400 << 20, reserved=4 * GIB)
    monkeypatch.setattr(devices, "load_parameters", lambda *where: where)
    place = Place("cuda:0", "float16")
    loaded = load_model(tmp_path, place, DecodeOptions(), EngineOptions(), 90)
    assert loaded == (tmp_path, torch.device("cuda:0"), torch.float16, 90)


def test_out_of_memory_while_loading_is_one_line(tmp_path, gpus, monkeypatch):
    make_checkpoint(tmp_path)
    gpus((9, 0))

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. And so on")

    monkeypatch.setattr(devices, "load_parameters", full)
    with pytest.raises(DeviceError, match=r"^cuda:0: out of memory[^\n]*--device cpu$"):
        load_model(tmp_path, Place("cuda:0", "bfloat16"), DecodeOptions(), EngineOptions())


def test_the_engine_on_a_cpu_is_the_plain_one(tmp_path):
    make_checkpoint(tmp_path, vocab_size=97)
    decode, options = DecodeOptions(2), EngineOptions(device="cpu", max_batch_rows=3)
    place, num_threads = Place("cpu", "float32"), torch.get_num_threads()
    engine, notes = open_engine(tmp_path, place, decode, options, 90, num_threads=num_threads)
    assert isinstance(engine, PlainEngine)
    assert engine.num_slots == 3
    assert notes == []
    ((hypothesis,),) = translate(engine, make_segments([[92, 5, 6, 2]], [91], [9]))
    assert 0 < len(hypothesis.tokens) <= 8
    assert max(hypothesis.tokens) < 90


def as_if_on_a_gpu(parameters):
    """A stand-in that says it lies on a GPU; nothing is computed with it."""
    config, like = parameters.config, parameters.lm_head
    head = types.SimpleNamespace(device=torch.device("cuda", 0), itemsize=2, dtype=like.dtype)
    return types.SimpleNamespace(config=config, lm_head=head)


def test_the_engine_on_a_gpu_has_slots_for_its_memory(tmp_path, gpus, monkeypatch):
    make_checkpoint(tmp_path)
    parameters = load_model(tmp_path, Place("cpu", "float32"), DecodeOptions(), EngineOptions())
    made = []
    monkeypatch.setattr(slot_engine, "SlotEngine", lambda *arguments: made.append(arguments))
    gpus((9, 0), free=10 * GIB, reserved=2 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: GIB)
    options = EngineOptions(gpu_memory=0.5, max_batch_rows=77)
    make_engine(as_if_on_a_gpu(parameters), DecodeOptions(5), options, 90)
    ((_, decode, num_tokens, plan),) = made
    assert (decode.beam_size, num_tokens, plan.beam_size) == (5, 90, 5)
    assert plan.max_batch_rows == 77
    assert 4 * GIB < plan.budget_bytes < 5 * GIB  # half of 12 GiB, less 1 GiB of weights


def test_without_triton_a_gpu_runs_the_plain_engine(tmp_path, gpus, monkeypatch, caplog):
    gpus((9, 0))
    monkeypatch.setattr(devices, "_has_triton", lambda: False)
    monkeypatch.setattr(devices, "PlainEngine", lambda *arguments: arguments)
    parameters = types.SimpleNamespace(
        lm_head=types.SimpleNamespace(device=torch.device("cuda", 0))
    )
    made = make_engine(parameters, DecodeOptions(), EngineOptions(), 90)
    assert made[0] is parameters
    assert "Triton is not installed" in caplog.text
