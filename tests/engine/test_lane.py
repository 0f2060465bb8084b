"""Running segments side by side in slots; what is finished leaves without a trace."""

import pytest
import torch

from nllb_cli.engine.lane import Lane, Request
from nllb_cli.model.transformer import Transformer
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Hypothesis
from tests.engine.parity import make_segments
from tests.reference import make_checkpoint


def test_a_request_is_complete_once_all_its_targets_are():
    (segment,) = make_segments([[5, 2]], (8, 9), [10])
    request = Request(segment)
    second, first = Hypothesis([1], -1.0, "eos"), Hypothesis([], -2.0, "eos")
    assert request.put(1, second) is None
    assert request.put(0, first) == (segment, (first, second))


@pytest.fixture
def lane(tmp_path):
    make_checkpoint(tmp_path, seed=4)
    parameters = load_parameters(tmp_path, torch.device("cpu"), torch.float32)
    return Lane(Transformer(parameters), DecodeOptions(2), 97)


@torch.inference_mode()
def run(lane, segments, arrivals):
    """Let segments arrive so many at a time, a decode step between; return tokens by segment."""
    jobs, found = lane.encode(segments), {}
    while jobs or lane.running:
        some, jobs = jobs[:arrivals], jobs[arrivals:]
        finished = lane.admit(some) if some else []
        finished += lane.decode() if lane.running else []
        for item in finished:
            found[id(item.job.request.segment)] = item.hypothesis.tokens
    return [found[id(segment)] for segment in segments]


def test_who_comes_and_goes_does_not_change_a_result(lane):
    rows = [[92, *range(4, 4 + n), 2] for n in (3, 20, 1, 9, 14)]
    segments = make_segments(rows, (91,), [4, 17, 9, 12, 3])
    together = run(lane, segments, arrivals=5)
    assert not lane.running
    assert run(lane, segments, arrivals=1) == together
    assert run(lane, segments, arrivals=2) == together
    assert len({tuple(tokens) for tokens in together}) > 1
