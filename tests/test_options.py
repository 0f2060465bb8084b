"""What a person may choose is checked, and a wrong choice is refused by its option's name."""

import pytest

from nllb_cli.errors import UsageError
from nllb_cli.options import DecodeOptions, EngineOptions, IoOptions, default_target_limit


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"beam_size": 0}, "--beam 0"),
        ({"beam_size": 33}, "--beam 33"),
        ({"length_penalty": 11.0}, "--length-penalty 11"),
        ({"length_penalty": float("nan")}, "--length-penalty nan"),
        ({"early_stopping": "maybe"}, "--early-stopping maybe"),
    ],
)
def test_wrong_search_is_refused_by_name(wrong, named):
    with pytest.raises(UsageError, match=named):
        DecodeOptions(**wrong)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"dtype": "int8"}, "--dtype int8"),
        ({"gpu_memory": 0.0}, "--gpu-memory 0.0"),
        ({"gpu_memory": 1.1}, "--gpu-memory 1.1"),
        ({"max_batch_rows": 0}, "--max-batch-rows 0"),
    ],
)
def test_wrong_engine_is_refused_by_name(wrong, named):
    with pytest.raises(UsageError, match=named):
        EngineOptions(**wrong)


def test_edges_are_allowed():
    DecodeOptions(beam_size=1, length_penalty=-10.0, early_stopping="never")
    DecodeOptions(beam_size=32, length_penalty=10.0)
    EngineOptions(gpu_memory=1.0, max_batch_rows=1)


def test_the_output_limit_follows_the_source():
    assert default_target_limit(1) == 52
    assert default_target_limit(100) == 250
    assert default_target_limit(231) == default_target_limit(5000) == 512


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"on_error": "skip"}, "--on-error skip: choose fail or keep"),
        ({"fields": ()}, "--field"),
        ({"fields": ("a", "")}, "--field"),
        ({"fields": ("a", "a")}, "--field a,a: a field is named twice"),
        ({"target_langs": ("fra_Latn", "fra_Latn")}, "--tgt fra_Latn,fra_Latn"),
        ({"target_langs": ("a", "b"), "target_field": "to"}, "--tgt-field"),
    ],
)
def test_wrong_rows_are_refused_by_name(wrong, named):
    with pytest.raises(UsageError, match=named):
        IoOptions(**wrong)
