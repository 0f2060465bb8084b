"""A measurement is of what was asked for, and its figures fit together."""

from dataclasses import asdict

import pytest

from nllb_cli import Translator, bench
from nllb_cli.bench import measure, sample_lines
from nllb_cli.errors import UsageError
from nllb_cli.options import DecodeOptions


def test_the_sample_is_as_long_as_asked_for_and_repeats_nothing():
    for count in (1, 99, 100, 101, 250, 10_000):
        lines = sample_lines(count)
        assert len(lines) == count
        assert len(set(lines)) == count
        assert all(line and line == line.strip() for line in lines)
    assert sample_lines(100) == sample_lines(300)[:100]
    for count in (0, 10_001):
        with pytest.raises(UsageError, match="choose 1 to 10000"):
            sample_lines(count)


@pytest.fixture(scope="module")
def translator():
    return Translator(device="cpu")


def test_the_figures_fit_together(translator):
    report = measure(translator, DecodeOptions(2), None, 40)
    assert (report.lines, report.beam, report.dtype) == (40, 2, "float32")
    assert (report.source_lang, report.target_lang) == ("eng_Latn", "fra_Latn")
    assert report.device.startswith("CPU")
    assert report.rows_per_s == pytest.approx(40 / report.lines_s, rel=0.02)
    assert report.tokens_per_s > 2 * report.rows_per_s
    assert report.source_tokens_per_s > 2 * report.rows_per_s
    assert 0 < report.lines_first_s <= report.lines_s
    assert min(report.load_s, report.first_line_s, report.one_line_s) > 0
    assert report.one_line_s < report.lines_s
    assert report.slots >= 40
    assert report.memory_bytes > 10**8
    shares = [value for name, value in asdict(report).items() if name.endswith("_share")]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert min(shares) >= 0
    assert report.decode_share > report.encode_share > 0


def test_without_a_number_it_runs_until_it_has_seen_enough(translator, monkeypatch):
    monkeypatch.setattr(bench, "WANTED_S", 0.8)
    report = measure(translator, DecodeOptions(1), "German", None)
    assert report.target_lang == "deu_Latn"
    assert report.lines >= 16
    assert report.lines_s > 0.4


def test_a_wrong_language_or_number_is_told_before_the_model_loads(monkeypatch):
    translator = Translator(device="cpu")
    monkeypatch.setattr(translator, "load", lambda _: pytest.fail("loaded"))
    with pytest.raises(UsageError, match="Klingon"):
        measure(translator, DecodeOptions(1), "Klingon", 5)
    with pytest.raises(UsageError, match="--lines 20000"):
        measure(translator, DecodeOptions(1), None, 20_000)


def test_one_device_at_a_time():
    with pytest.raises(UsageError, match="measures one device"):
        measure(Translator(device="cpu,cpu"), DecodeOptions(1), None, 5)
