import csv
import gzip
import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.partial import pack
from nllb_cli.jobs import JobOptions, JobRun
from nllb_cli.options import BLOCK_ROWS, IoOptions
from nllb_cli.plan import Job
from nllb_cli.slices import Slice
from nllb_cli.stream import Stream, StreamOptions
from nllb_cli.text.buckets import Limits
from tests.conftest import ByteTokenizer, FakeEngine

IO = IoOptions("eng_Latn", ("fra_Latn",))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class CrashError(Exception):
    pass


def run(jobs, io=IO, stop_after=None, window_rows=32, engine=None, **options):
    """Run jobs through the fake engine, which gives texts back; maybe crash on the way."""
    made = JobRun([Job(*job) for job in jobs], JobOptions(io, **options))
    made.check()
    made.begin()
    stream_options = StreamOptions(on_error=io.on_error, limits=Limits(window_rows), pause_s=None)
    stream = Stream(engine or FakeEngine(), ByteTokenizer(), stream_options)
    try:
        for chunk in stream.run(made.records()):
            made.write(chunk)
            if stop_after is not None and stream.stats.rows >= stop_after:
                raise CrashError
    finally:
        stream.close()
        made.close()
    return made


def write_rows(name, count):
    """Write an input of the format that its name tells."""
    os.makedirs(os.path.dirname(name), exist_ok=True)
    texts = [f"line {n}" for n in range(count)]
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": texts}), name)
        return
    if ".jsonl" in name:
        texts = [json.dumps({"text": text}) for text in texts]
    elif name.endswith(".csv"):
        texts.insert(0, "text")
    with open(f"{name}.part", "w") as file:
        file.writelines(f"{text}\n" for text in texts)
    pack(Path(f"{name}.part"), Path(name))


ODD = (
    *("Hello", "Где вокзал", "駅はどこですか", "مرحبا", "नमस्ते", "“q”", "e\u0301", "<unk>", "</s>"),
    *("😆", "👨\u200d👩\u200d👧", "🇫🇷", "\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\r", "\0"),
    *("\u00a0", "\t", "\u200b", " ", "  "),
)


def test_a_long_file_of_odd_lines_comes_out_as_it_was():
    """The engine gives texts back, each with its number: a row lost or misplaced would show."""
    chance = random.Random(1)
    rows = []
    for number in range(20_000):
        if chance.random() < 0.05:
            rows.append(chance.choice(["", " ", "\t", "\u3000\u00a0", "  \u2028 "]))
        else:
            rows.append(f" {number} {''.join(chance.choices(ODD, k=chance.randrange(9)))}.")
    write("in.txt", "\n".join(rows) + "\n")
    made = run([("in.txt", "out.txt")], window_rows=512)
    assert read("out.txt") == read("in.txt")
    assert made.progress.written == len(rows)


def lines(count, start=0):
    return "".join(f"line {n}\n" if n % 5 else "\n" for n in range(start, start + count))


def write(name, text):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def read(name):
    with open(name, encoding="utf-8", newline="") as file:
        return file.read()


def read_bytes(name):
    with open(name, "rb") as file:
        return file.read()


def test_several_inputs_go_to_their_outputs():
    sizes = [0, 3, 500, 0, 0, 1, 77, 0]
    for number, size in enumerate(sizes):
        write(f"in/{number}.txt", lines(size, number * 1000))
    jobs = [(f"in/{n}.txt", f"out/{n}.txt") for n in range(len(sizes))]
    made = run(jobs, makes_folders=True)
    for number, _ in enumerate(sizes):
        assert read(f"out/{number}.txt") == read(f"in/{number}.txt")
    assert made.is_complete
    assert sorted(os.listdir("out")) == [f"{n}.txt" for n in range(len(sizes))]


@pytest.mark.parametrize("output", ["file/1.txt", "file/deeper/1.txt"])
def test_an_output_folder_that_is_a_file_is_refused_before_anything_is_done(output):
    write("in/1.txt", "x\n")
    write("file", "what it holds\n")
    job_run = JobRun([Job("in/1.txt", output)], JobOptions(IO, makes_folders=True))
    with pytest.raises(UsageError, match="file: is no folder"):
        job_run.check()
    assert read("file") == "what it holds\n"


@pytest.mark.parametrize("size", [0, 1])
def test_more_small_inputs_than_can_be_open(size):
    jobs = [(f"in/{n}.txt", f"out/{n}.txt") for n in range(150)]
    for name, _ in jobs:
        write(name, "x\n" * size)
    run(jobs, makes_folders=True)
    assert all(read(name) == "x\n" * size for _, name in jobs)


def test_an_existing_output_is_refused_before_anything_is_done():
    write("a.txt", "x\n")
    write("b.txt", "x\n")
    write("out.txt", "precious\n")
    with pytest.raises(UsageError, match="out.txt: exists; choose another name or --overwrite"):
        run([("a.txt", "new.txt"), ("b.txt", "out.txt")])
    assert not os.path.exists("new.txt.part")
    run([("b.txt", "out.txt")], mode="overwrite")
    assert read("out.txt") == "x\n"


def test_an_unfinished_output_is_refused_with_the_ways_out():
    write("a.txt", lines(3000))
    with pytest.raises(CrashError):
        run([("a.txt", "out.txt")], stop_after=50)
    with pytest.raises(UsageError, match="--resume continues it, --overwrite starts again"):
        run([("a.txt", "out.txt")])


@pytest.mark.parametrize("stop_after", [1, 33, 1200, 2000])
def test_resume_continues_where_it_stopped(stop_after):
    write("a.txt", lines(3000))
    with pytest.raises(CrashError):
        run([("a.txt", "out.txt")], stop_after=stop_after)
    assert not os.path.exists("out.txt")
    made = run([("a.txt", "out.txt")], mode="resume")
    assert made.progress.resumed >= stop_after
    assert made.progress.written + made.progress.resumed == 3000
    assert made.progress.total == 3000
    assert read("out.txt") == read("a.txt")


def test_resume_skips_finished_inputs_and_begins_those_that_were_not():
    jobs = [(f"{n}.txt", f"{n}.out") for n in range(4)]
    for number, (name, _) in enumerate(jobs):
        write(name, lines(1000, number))
    with pytest.raises(CrashError):
        run(jobs, stop_after=2001)
    assert os.path.exists("1.out")
    before = os.stat("0.out").st_mtime_ns
    made = run(jobs, mode="resume")
    assert made.num_skipped >= 2
    assert made.is_complete
    assert os.stat("0.out").st_mtime_ns == before
    assert all(read(output) == read(name) for name, output in jobs)


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".jsonl", ".jsonl.zst", ".csv", ".parquet"])
@pytest.mark.parametrize("targets", [("fra_Latn",), ("fra_Latn", "deu_Latn")])
def test_outputs_that_an_interrupted_run_was_to_replace_are_not_complete(suffix, targets):
    io = IoOptions("eng_Latn", targets, status_field="status")
    names = [f"in/{n}{suffix}" for n in range(3)]
    for name in names:
        write_rows(name, 3000)

    def jobs(folder):
        stem = ".{tgt}" if "txt" in suffix else ""
        return [(name, f"{folder}/{n}{stem}{suffix}") for n, name in enumerate(names)]

    run(jobs("whole"), io, makes_folders=True)
    found = sorted(os.listdir("whole"))
    for name in found:
        write(f"out/{name}", "old")
    os.remove(f"out/{found[-1]}")
    with pytest.raises(CrashError):
        run(jobs("out"), io, stop_after=1, mode="overwrite")
    assert all(read(f"out/{name}") == "old" for name in found[:-1])
    with pytest.raises(UsageError, match="--resume continues it, --overwrite starts again"):
        run(jobs("out"), io)
    made = run(jobs("out"), io, mode="resume")
    assert (made.complete, made.num_finished) == ([], 3)
    assert sorted(os.listdir("out")) == found
    for name in found:
        assert read_bytes(f"out/{name}") == read_bytes(f"whole/{name}")


def test_what_is_begun_again_takes_the_input_as_it_is_then():
    """An input may grow while the others are translated."""
    for name in ("a.txt", "b.txt"):
        write(name, lines(9))
        write(f"{name}.out", "old\n")
    jobs = [Job("a.txt", "a.txt.out"), Job("b.txt", "b.txt.out")]
    made = JobRun(jobs, JobOptions(IO, mode="overwrite"))
    made.check()
    made.begin()
    write("b.txt", lines(99))
    stream = Stream(FakeEngine(), ByteTokenizer(), StreamOptions(pause_s=None))
    for chunk in stream.run(made.records()):
        made.write(chunk)
    made.close()
    assert made.is_complete
    assert read("b.txt.out") == read("b.txt")


def test_resume_of_a_changed_run_says_what_changed():
    write("a.txt", lines(300))
    jobs = [Job("a.txt", "out.txt")]

    def start(beam):
        made = JobRun(jobs, JobOptions(IO, mode="resume"))
        made.settings = {"search": {"beam_size": beam}}
        next(made.records())
        made.close()

    start(4)
    with pytest.raises(UsageError, match="--beam was 4, now is 5"):
        start(5)
    write("a.txt", lines(301))
    with pytest.raises(UsageError, match="input"):
        start(4)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_resume_of_a_complete_output_is_known_and_a_newer_input_refused(name):
    write(name, '{"text": "x"}\n' * 9)
    job = (name, f"out-{name}")
    run([job])
    before = os.stat(job[1]).st_mtime_ns
    made = run([job], mode="resume")
    assert (made.complete, made.num_skipped) == ([Job(*job)], 1)
    assert os.stat(job[1]).st_mtime_ns == before
    os.utime(name, ns=(before + 1, before + 1))
    with pytest.raises(UsageError, match=f"out-{name}: complete, but {name} is newer; remove out-"):
        run([job], mode="resume")
    os.remove(job[1])
    made = run([job], mode="resume")
    assert (made.complete, made.num_finished) == ([], 1)


def test_a_complete_output_of_a_pipe_is_left_and_that_of_stdin_refused():
    """Neither has a time to compare: there is no file `-`, and a pipe is as old as the run."""
    write("in.txt", "a\n")
    run([("in.txt", "out.txt")])
    os.utime("out.txt", ns=(1, 1))
    os.mkfifo("pipe")
    made = JobRun([Job("pipe", "out.txt")], JobOptions(IO, mode="resume"))
    made.check()
    assert made.complete == [Job("pipe", "out.txt")]
    with pytest.raises(UsageError, match="--resume: stdin cannot be read again"):
        run([("-", "out.txt")], mode="resume")


@pytest.mark.parametrize("stop_after", [40, 4000, 4200])
def test_status_of_a_resumed_run_is_that_of_one_in_one_go(stop_after):
    text = "".join(f"line {n % 17}\n" for n in range(BLOCK_ROWS + 200))
    write("a.txt", text)
    io = IoOptions("eng_Latn", ("fra_Latn",), status_field="status")
    run([("a.txt", "whole.txt")], io, window_rows=1024)
    with pytest.raises(CrashError):
        run([("a.txt", "out.txt")], io, stop_after=stop_after)
    run([("a.txt", "out.txt")], io, mode="resume")
    assert read("out.txt") == text
    assert read("out.txt.status") == read("whole.txt.status")
    assert read("out.txt.status").count("repeated") == BLOCK_ROWS + 200 - 2 * 17


@pytest.mark.parametrize("count", [1, 3, 16, 1000])
def test_shards_put_together_are_the_whole(count):
    write("a.txt", lines(333))
    found = ""
    for number in range(1, min(count, 20) + 1):
        run([("a.txt", f"{number}.out")], slice=Slice(shard=(number, count)))
        found += read(f"{number}.out")
    assert read("a.txt").startswith(found)
    assert count > 20 or found == read("a.txt")


def test_skip_and_limit_cut_each_input():
    write("a.txt", "".join(f"{n}\n" for n in range(100)))
    write("b.txt", "".join(f"{n}\n" for n in range(12)))
    jobs = [("a.txt", "a.out"), ("b.txt", "b.out")]
    run(jobs, slice=Slice(skip=10, limit=5))
    assert read("a.out").split() == ["10", "11", "12", "13", "14"]
    assert read("b.out").split() == ["10", "11"]
    run([("a.txt", "c.out")], slice=Slice(skip=10, limit=5, shard=(2, 2)))
    assert read("c.out").split() == ["12", "13", "14"]
    run([("b.txt", "d.out")], slice=Slice(skip=50))
    assert read("d.out") == ""


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".parquet"])
def test_an_input_that_skip_leaves_nothing_of_is_told(suffix, caplog):
    for name in "abc":
        if suffix == ".parquet":
            pq.write_table(pa.table({"text": ["x"] * 3}), name + suffix)
        else:
            with open(name + suffix, "w") as file:
                file.write("text\n" * (suffix == ".csv") + "x\n" * 3)
    jobs = [(name + suffix, name) for name in "abc"]
    run(jobs[:1], slice=Slice(skip=2))
    run(jobs[:1], mode="overwrite", slice=Slice(skip=4, limit=0))
    run(jobs[:1], mode="overwrite", slice=Slice(skip=2, shard=(1, 4)))
    assert caplog.messages == []
    run(jobs[:1], mode="overwrite", slice=Slice(skip=3))
    assert caplog.messages == [f"a{suffix}: has 3 rows, and --skip 3 leaves all out"]
    run(jobs, mode="overwrite", slice=Slice(skip=9, shard=(1, 2)))
    told = f"a{suffix}: has 3 rows, and --skip 9 leaves all out; so with 2 more inputs"
    assert caplog.messages[1:] == [told]
    list(JobRun([Job(*job) for job in jobs], JobOptions(IO, slice=Slice(skip=9))).count())
    assert caplog.messages[2:] == [told]


def test_short_rows_of_tables_are_told_once(caplog):
    for name, content in [("a", "text,n\nx,1\n"), ("b", "text,n\nx\n"), ("c", "text,n\n\nx\nx\n")]:
        with open(f"{name}.csv", "w") as file:
            file.write(content)
    jobs = [(f"{name}.csv", f"{name}.out") for name in "abc"]
    run(jobs[:1])
    assert caplog.messages == []
    run(jobs, mode="overwrite")
    told = "b.csv:2: fewer fields than the header, empty ones are added (1 row)"
    assert caplog.messages == [f"{told}; so with 1 more input"]


def test_a_bad_row_names_its_input_and_keeps_what_was_done():
    write("a.jsonl", '{"text": "a"}\n' * 40)
    write("b.jsonl", '{"text": "b"}\n{"text": "c"}\n{"text": 7}\n{"text": "d"}\n')
    with pytest.raises(InputError, match="b.jsonl:3: .*--on-error keep"):
        run([("a.jsonl", "a.out"), ("b.jsonl", "b.out")])
    assert read("a.out").count("translation") == 40
    assert not os.path.exists("b.out")
    assert read("b.out.part").count("translation") == 2


def test_a_bad_row_is_kept_with_its_reason():
    write("b.jsonl", '{"text": "b"}\n{"text": 7}\nnot json\n{"text": null}\n')
    io = IoOptions("eng_Latn", ("fra_Latn",), on_error="keep", status_field="status")
    run([("b.jsonl", "b.out")], io)
    rows = [json.loads(line) for line in read("b.out").splitlines()]
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "blank"]
    assert [row["translation"] for row in rows] == ["b", "", "", None]
    assert rows[1]["translation_error"] == "field 'text' holds a number, not a text"


def test_languages_come_from_the_rows():
    rows = [("eng_Latn", "fr"), ("de", "eng_Latn"), ("", "xx"), (None, "deu_Latn")]
    text = "".join(json.dumps({"text": "a", "s": s, "t": t}) + "\n" for s, t in rows)
    write("a.jsonl", text)
    io = IoOptions("eng_Latn", source_field="s", target_field="t", on_error="keep")
    run([("a.jsonl", "out.jsonl")], io)
    found = [json.loads(line) for line in read("out.jsonl").splitlines()]
    assert [row["translation"] for row in found] == ["a", "a", "", "a"]
    assert '"xx" is not in this model' in found[2]["translation_error"]


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_each_row_goes_from_its_language_into_several(format):
    sources = ["eng_Latn", "de", "", None, "xx"] * 20
    texts = [f"row {n}" for n in range(99)] + [None]
    if format == "parquet":
        pq.write_table(pa.table({"s": sources, "text": texts}), "a.parquet")
    elif format == "jsonl":
        rows = zip(sources, texts, strict=True)
        write("a.jsonl", "".join(json.dumps({"s": s, "text": t}) + "\n" for s, t in rows))
    else:
        rows = zip(sources, texts, strict=True)
        write("a.csv", "s,text\n" + "".join(f"{s or ''},{t or ''}\n" for s, t in rows))
    io = IoOptions("eng_Latn", ("fra_Latn", "deu_Latn"), source_field="s", on_error="keep")
    engine = Noting()
    run([(f"a.{format}", f"out.{format}")], io, engine=engine)
    found = read_table(f"out.{format}")
    for name in ("translation_fra_Latn", "translation_deu_Latn"):
        expected = [t if s != "xx" else "" for s, t in zip(sources, texts, strict=True)]
        assert [row[name] or None for row in found] == [text or None for text in expected]
    assert all('"xx" is not in this model' in row["translation_error"] for row in found[4:-1:5])
    # one pass of the encoder a row, for both targets, beginning with the row's own language
    languages = ByteTokenizer.languages
    assert {targets for _, targets in engine.seen} == {
        (languages["fra_Latn"], languages["deu_Latn"])
    }
    assert len(engine.seen) == 80
    firsts = Counter(first for first, _ in engine.seen)
    assert firsts == {languages["eng_Latn"]: 60, languages["deu_Latn"]: 20}


class Noting(FakeEngine):
    """Notes the languages of each segment."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def translate(self, source):
        for segment, hypotheses in super().translate(source):
            self.seen.append((segment.source_tokens[0], segment.target_ids))
            yield segment, hypotheses


def read_table(name):
    if name.endswith(".parquet"):
        return pq.read_table(name).to_pylist()
    with open(name, encoding="utf-8", newline="") as file:
        return [json.loads(line) for line in file] if "json" in name else list(csv.DictReader(file))


def test_lines_into_several_languages_are_a_file_each():
    write("a.txt", lines(50))
    io = IoOptions("eng_Latn", ("fra_Latn", "deu_Latn"))
    run([("a.txt", "out.{tgt}.txt")], io)
    assert read("out.fra_Latn.txt") == read("out.deu_Latn.txt") == read("a.txt")
    with pytest.raises(UsageError, match="out.fra_Latn.txt: exists"):
        run([("a.txt", "out.{tgt}.txt")], io)


def test_a_vanished_input_is_named():
    write("a.txt", "x\n")
    made = JobRun([Job("a.txt", "out.txt")], JobOptions(IO))
    made.check()
    os.remove("a.txt")
    with pytest.raises(InputError, match="a.txt: cannot be read"):
        next(made.records())


def test_a_pipe_is_live_and_a_file_is_not(folder):
    write("a.txt", "x\n")
    os.mkfifo("pipe")
    assert not JobRun([Job("a.txt", None)], JobOptions(IO)).is_live
    assert JobRun([Job("pipe", None)], JobOptions(IO)).is_live
    assert JobRun([Job("a.txt", None), Job("-", None)], JobOptions(IO)).is_live
    threading.Thread(target=lambda: write("pipe", "a\nb\n")).start()
    run([("pipe", "out.txt")])
    assert read("out.txt") == "a\nb\n"


def table(delimiter):
    rows = (f'{n}{delimiter}"row ""{n}"",\nsecond line"\n' for n in range(9000))
    return f"n{delimiter}text\n" + "".join(rows)


PIPED = {
    "lines": lines(9000),
    "jsonl": "".join(json.dumps({"n": n, "text": f"row {n}"}) + "\n" for n in range(9000)),
    "csv": table(","),
    "tsv": table("\t"),
}


def feed(path, content):
    """Write into a pipe from a thread, as another process would."""

    def write_all():
        with open(path, "wb") as file:
            file.write(content)

    threading.Thread(target=write_all, daemon=True).start()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("format", PIPED)
def test_a_named_pipe_is_opened_once_and_gives_all_its_rows(format, suffix):
    """What opens it a second time waits for ever."""
    content = PIPED[format].encode()
    with open("in", "wb") as file:
        file.write(content)
    run([("in", "expected")], format=format)
    os.mkfifo(f"pipe{suffix}")
    feed(f"pipe{suffix}", gzip.compress(content) if suffix else content)
    made = run([(f"pipe{suffix}", "out")], format=format)
    assert read("out") == read("expected")
    assert made.progress.written == 9000


@pytest.mark.parametrize("format", PIPED)
def test_a_process_substitution_gives_all_its_rows(format):
    """The shell names the end of a pipe: what was read at a first opening is gone at a second."""
    write("in", PIPED[format])
    run([("in", "expected")], format=format)
    reads, writes = os.pipe()
    feed(writes, PIPED[format].encode())
    run([(f"/dev/fd/{reads}", "out")], format=format)
    os.close(reads)
    assert read("out") == read("expected")


def test_an_output_that_a_pipe_has_begun_is_not_continued():
    """The rows of before are not in the pipe any more, or others are."""
    os.mkfifo("pipe")
    for format in PIPED:
        write("out.part.json", "{}")
        made = JobRun([Job("pipe", "out")], JobOptions(IO, mode="resume", format=format))
        with pytest.raises(UsageError, match="--resume: pipe is a pipe, and may .* --overwrite"):
            made.check()


def test_the_header_of_a_pipe_is_read_before_anything_is_begun():
    write("out.csv.part", "what another run has left")
    os.mkfifo("pipe.csv")
    feed("pipe.csv", b"id,sentence\n1,a\n")
    with pytest.raises(InputError, match=r"pipe.csv: no column 'text' in the header"):
        run([("pipe.csv", "out.csv")], mode="overwrite")
    assert read("out.csv.part") == "what another run has left"


def test_count_and_sample_write_nothing():
    write("a.txt", "".join(f"{n}\n" for n in range(10)))
    write("b.txt", "x\n")
    made = JobRun([Job("a.txt", "x"), Job("b.txt", "y")], JobOptions(IO, slice=Slice(skip=8)))
    assert [num_rows for _, num_rows, _ in made.count()] == [2, 0]
    assert [record.texts for record in made.sample()] == [("8",), ("9",)]
    assert sorted(os.listdir()) == ["a.txt", "b.txt"]
