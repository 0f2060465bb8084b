"""Unfinished outputs: refused, resumed, cut, published."""

import errno
import os
from contextlib import closing

import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io import partial, sidecar
from nllb_cli.io.formats import count_kept, open_sink, open_source
from nllb_cli.io.partial import Partial, PartialFile, outdate
from nllb_cli.io.sidecar import fingerprint
from tests.io.pump import OPTIONS, pump

ROWS = b"".join(b"row %d\n" % n for n in range(5000))
SUFFIXES = [".txt", ".jsonl", ".parquet", ".txt.gz", ".csv"]


def make(folder, suffix):
    import gzip
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"in{suffix}"
    texts = ROWS.decode().split("\n")[:-1]
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": texts, "n": range(5000)}), path, row_group_size=3000)
    elif suffix == ".csv":
        path.write_bytes(b"text\n" + ROWS)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        path.write_bytes(gzip.compress(ROWS) if suffix == ".txt.gz" else ROWS)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_resume_continues_where_it_stopped(tmp_path, suffix):
    source = make(tmp_path, suffix)
    whole, target = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    pump(source, whole)
    done = pump(source, target, stop_after=1234, settings={"beam": 4})
    assert done == 1234
    assert not target.exists()
    done += pump(source, target, stop_after=0, settings={"beam": 4}, mode="resume")
    done += pump(source, target, stop_after=2500, settings={"beam": 4}, mode="resume")
    done += pump(source, target, settings={"beam": 4}, mode="resume")
    assert done == 5000
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([source, whole, target])
    assert pump(source, target, settings={"beam": 4}, mode="resume") == 0


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".csv"])
def test_kept_rows_are_counted_and_left_as_they_are(tmp_path, suffix):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    if suffix == ".csv":
        source.write_bytes(b"text\n" + ROWS)

    def kept():
        with closing(open_source(str(source), OPTIONS)) as rows:
            return count_kept(str(target), rows, OPTIONS)

    assert kept() == 0
    pump(source, target, stop_after=1234)
    if suffix != ".parquet":
        with open(f"{target}.part", "ab") as file:
            file.write(b"torn")
    before = {p: p.is_file() and p.read_bytes() for p in tmp_path.iterdir()}
    assert kept() == 1234
    assert {p: p.is_file() and p.read_bytes() for p in tmp_path.iterdir()} == before
    outdate([target])
    assert kept() == 0


def statuses_before(source, target):
    with closing(open_source(str(source), OPTIONS)) as rows:
        sink = open_sink(str(target), rows, OPTIONS, "resume")
        sink.close()
        return sink.num_rows, sink.before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_statuses_are_kept_unless_the_run_was_killed(tmp_path, monkeypatch, suffix):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    pump(source, target, stop_after=1234)
    assert statuses_before(source, target) == (1234, {"ok": 1234})
    assert statuses_before(source, target) == (1234, {"ok": 1234})
    pump(source, target, stop_after=1000, mode="resume")
    assert statuses_before(source, target) == (2234, {"ok": 2234})
    with monkeypatch.context() as patch:
        patch.setattr(partial.Partial, "pause", lambda *_: None)
        pump(source, target, stop_after=1000, mode="resume")
    assert statuses_before(source, target) == (3234, {})
    pump(source, target, stop_after=1000, mode="resume")
    assert statuses_before(source, target) == (4234, {})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_resumed_run_leaves_its_own_settings_though_it_is_killed(tmp_path, monkeypatch, suffix):
    def made(too_long):
        return {"rows": {"on_error": "fail"}, "numbers": {"too_long": too_long}}

    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    pump(source, target, stop_after=1234, settings=made("error"))
    monkeypatch.setattr(partial.Partial, "pause", lambda *_: None)
    pump(source, target, stop_after=9, settings=made("cut"), mode="resume")
    with pytest.raises(UsageError, match="--too-long was cut, now is error"):
        pump(source, target, settings=made("error"), mode="resume")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_run_is_refused_and_told_why(tmp_path, suffix):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    pump(source, target, stop_after=10, settings=beam(4))
    with pytest.raises(UsageError, match=r"belongs to another run \(--beam was 4, now is 5\)"):
        pump(source, target, settings=beam(5), mode="resume")
    with pytest.raises(UsageError, match=r"unfinished run; --resume .* --overwrite"):
        pump(source, target, settings=beam(4))
    with source.open("ab") as file:
        file.write(b"more")
    with pytest.raises(UsageError, match=r"the input had \d+ bytes, now has \d+;"):
        Partial([target], {"input": fingerprint(str(source)), **beam(4)}, "resume")
    os.truncate(source, source.stat().st_size - 4)
    assert pump(source, target, settings=beam(5), mode="overwrite") == 5000


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_touched_input_is_the_same_and_a_large_one_can_be_said_to_be(
    tmp_path, monkeypatch, suffix
):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    pump(source, target, stop_after=10)
    before = source.stat().st_mtime_ns
    os.utime(source, ns=(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(sidecar, "WHOLE_BYTES", 0)
        with pytest.raises(
            UsageError, match=r"since; .*, touch -d @\d+\.\d{9} INPUT says"
        ) as error:
            pump(source, target, mode="resume")
    assert f"@{before // 10**9}.{before % 10**9:09} " in str(error.value)
    assert pump(source, target, stop_after=20, mode="resume") == 20
    os.utime(source, ns=(before, before))
    assert pump(source, target, mode="resume") == 5000 - 30


def beam(number):
    return {"search": {"beam_size": number}}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_target_is_refused(tmp_path, suffix):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    target.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists; choose another name or --overwrite"):
        pump(source, target)
    pump(source, target, stop_after=10, mode="overwrite")
    assert target.read_bytes() == b"precious"
    pump(source, target, mode="resume")
    assert target.read_bytes() != b"precious"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_output_that_is_to_be_replaced_is_resumed_from_its_first_row(
    tmp_path, monkeypatch, suffix
):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    whole, marker = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}.part.json"
    pump(source, whole, settings=beam(5))
    target.write_bytes(b"old")
    pump(source, target, stop_after=10, settings=beam(4), mode="overwrite")
    outdate([target])
    outdate([tmp_path / f"new{suffix}"])
    assert [path.name for path in tmp_path.glob("*.part*") if path.is_file()] == [marker.name]
    with monkeypatch.context() as patch:  # a kill at this moment must not make it look complete
        patch.setattr(Partial, "begin", None)
        with pytest.raises(TypeError):
            pump(source, target, settings=beam(5), mode="overwrite")
    assert marker.exists()
    with pytest.raises(UsageError, match="--resume continues it, --overwrite starts again"):
        pump(source, target, settings=beam(5))
    assert target.read_bytes() == b"old"
    assert pump(source, target, settings=beam(5), mode="resume") == 5000
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([source, whole, target])
    for content in ("{", "[]", '{"complete_rows": 7, "settings": {}}'):
        marker.write_text(content)
        assert pump(source, target, mode="overwrite") == 5000


def test_a_partial_file_without_sidecar_is_refused(tmp_path):
    source, target = make(tmp_path, ".txt"), tmp_path / "out.txt"
    (tmp_path / "out.txt.part").write_bytes(b"a\n")
    with pytest.raises(UsageError, match=r"without out\.txt\.part\.json"):
        pump(source, target, mode="resume")


@pytest.mark.parametrize("suffix", [".txt", ".parquet", ".txt.gz"])
@pytest.mark.parametrize("step", ["replace", "end"])
def test_a_crash_while_publishing_is_mended(tmp_path, monkeypatch, suffix, step):
    source, target = make(tmp_path, suffix), tmp_path / f"out{suffix}"
    pump(source, tmp_path / f"whole{suffix}")

    def crash(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "replace":
            patch.setattr(partial.os, "fsync", os.fsync)
            replace = os.replace
            patch.setattr(
                os, "replace", lambda a, b: crash() if str(b) == str(target) else replace(a, b)
            )
        else:
            patch.setattr(partial.Partial, "end", crash)
        with pytest.raises(KeyboardInterrupt):
            pump(source, target)
    assert target.exists() == (step == "end")
    assert pump(source, target, mode="resume") == 0
    assert target.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_torn_row_is_cut_in_all_files(tmp_path):
    from nllb_cli.options import IoOptions

    options = IoOptions("eng_Latn", ("fra_Latn", "deu_Latn"), status_field="s")
    source = make(tmp_path, ".txt")
    pump(source, tmp_path / "out.{tgt}.txt", options, stop_after=100)
    parts = [tmp_path / f"out.{name}.part" for name in ("fra_Latn.txt", "deu_Latn.txt")]
    parts.append(tmp_path / "out.txt.status.part")
    for number, part in enumerate(parts):
        os.truncate(part, part.stat().st_size - 1 - 20 * number)
    assert 4890 < 5000 - 90 < pump(source, tmp_path / "out.{tgt}.txt", options, mode="resume")
    for name in ("fra_Latn", "deu_Latn"):
        assert (tmp_path / f"out.{name}.txt").read_bytes() == ROWS.upper()
    assert (tmp_path / "out.txt.status").read_bytes() == b"ok\n" * 5000


def test_one_writer_at_a_time(tmp_path):
    first = PartialFile(tmp_path / "out.txt", "strict")
    with pytest.raises(UsageError, match="another nllb is writing it"):
        PartialFile(tmp_path / "out.txt", "strict")
    first.close()
    PartialFile(tmp_path / "out.txt", "strict").close()


def test_a_full_disk_is_one_line_and_resumable(tmp_path, monkeypatch):
    source, target = make(tmp_path, ".txt"), tmp_path / "out.txt"
    room = [10_000]

    def write(fd, data):
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(room[0], len(data), 999)
        room[0] -= taken
        return os_write(fd, data[:taken])

    os_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(partial, "_PENDING_CHARS", 2000)
        patch.setattr(partial.os, "write", write)
        with pytest.raises(InputError, match=r"No space left.*; 1,\d\d\d rows are safe") as error:
            pump(source, target)
    assert "\n" not in str(error.value)
    assert pump(source, target, OPTIONS, mode="resume") < 5000
    assert target.read_bytes() == ROWS.upper()
