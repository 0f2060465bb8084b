"""What a run is made of: marks that change with what they stand for."""

import json
import os
from dataclasses import asdict

import pytest

from nllb_cli import __version__, manifest
from nllb_cli.errors import InputError, UsageError
from nllb_cli.options import DecodeOptions, IoOptions
from nllb_cli.plan import Job
from nllb_cli.slices import Slice


def test_a_models_mark_changes_with_its_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    (tmp_path / "notes.txt").write_text("of no weight")
    before = manifest.model_mark(tmp_path)
    assert sorted(before) == ["config.json", "model.safetensors"]
    (tmp_path / "notes.txt").write_text("changed")
    assert manifest.model_mark(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"1235")
    after = manifest.model_mark(tmp_path)
    assert after["config.json"] == before["config.json"]
    assert after["model.safetensors"] != before["model.safetensors"]


def test_settings_are_what_json_gives_back():
    io = IoOptions("eng_Latn", ("fra_Latn", "deu_Latn"))
    rows = {"slice": asdict(Slice(shard=(1, 2)))}
    found = manifest.settings({"m": "1"}, io, DecodeOptions(2), {"dtype": "float32"}, rows)
    assert json.loads(json.dumps(found)) == found
    assert found["version"] == __version__
    other = manifest.settings({"m": "1"}, io, DecodeOptions(3), {"dtype": "float32"}, rows)
    assert [name for name in found if found[name] != other[name]] == ["search"]


def test_versions_name_what_is_installed():
    found = manifest.versions()
    assert found["nllb"] == __version__
    assert {"python", "torch", "sentencepiece"} <= set(found)


def test_a_record_is_written_whole_or_not(tmp_path):
    path = tmp_path / "run.json"
    manifest.write_record(str(path), {"rows": 3, "text": "é"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"rows": 3, "text": "é"}
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
    with pytest.raises(InputError, match=r"absent.*cannot be written"):
        manifest.write_record(str(tmp_path / "absent" / "run.json"), {})


def test_a_record_into_a_pipe_leaves_it_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    manifest.check_record(str(pipe))
    manifest.write_record(str(pipe), {"rows": 3})
    assert json.loads(os.read(read, 1000)) == {"rows": 3}
    os.close(read)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_record_tells_that_another_run_made_a_complete_output(tmp_path):
    source, record = tmp_path / "in.txt", tmp_path / "run.json"
    source.write_text("a\n")
    jobs = [Job(str(source), "out.txt")]
    settings = {"search": {"beam_size": 4}, "version": "1"}
    manifest.refuse_changed(str(record), jobs, settings)  # there is none
    manifest.write_record(str(record), {"settings": settings, "inputs": manifest.inputs(jobs)})
    manifest.refuse_changed(str(record), jobs, settings)
    manifest.refuse_changed(str(record), [Job(str(source), "another.txt")], {})
    with pytest.raises(UsageError, match=r"out\.txt: complete, but .*--beam was 4, now is 5"):
        manifest.refuse_changed(str(record), jobs, {**settings, "search": {"beam_size": 5}})
    source.write_text("b!\n")
    with pytest.raises(UsageError, match="the input had 2 bytes, now has 3"):
        manifest.refuse_changed(str(record), jobs, settings)
    record.write_text("[]")
    manifest.refuse_changed(str(record), jobs, {})


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_complete_output_without_bad_rows_is_right_under_on_error_keep(tmp_path, suffix):
    source, record = tmp_path / f"in.{suffix}", str(tmp_path / "run.json")
    source.write_text("a\n")
    jobs = [Job(str(source), f"out.{suffix}")]
    made = {"numbers": {"too_long": "error"}, "rows": {"on_error": "fail", "target_langs": []}}
    manifest.write_record(record, {"settings": made, "inputs": manifest.inputs(jobs)})
    keep = {**made, "rows": {"on_error": "keep", "target_langs": []}}
    if suffix == "jsonl":
        manifest.refuse_changed(record, jobs, keep)
        return
    with pytest.raises(UsageError, match="--on-error was fail, now is keep"):  # a column is missing
        manifest.refuse_changed(record, jobs, keep)
