import os

import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.options import IoOptions
from nllb_cli.plan import Job, plan, refuse_fields_of_lines, refuse_own_files


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.jsonl.gz", "data/c.parquet", "data/sub/a.txt", "data/notes.md",
                 "data/.hidden.txt", "data/x.json", "t.csv", "data/t.csv"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def test_one_file(tree):
    assert plan(["a.txt"], "out.txt", None) == [Job("a.txt", "out.txt")]
    assert plan(["a.txt"], None, None) == [Job("a.txt", None)]
    assert plan(["-"], "out.txt", None) == [Job("-", "out.txt")]


def test_several_files_follow_each_other_on_stdout(tree):
    names = ["data/sub/a.txt", "a.txt"]
    assert plan(names, None, None) == [Job(name, None) for name in names]


def test_a_folder_is_mirrored_in_order_without_what_is_no_corpus(tree):
    assert plan(["data"], None, "out") == [
        Job("data/c.parquet", "out/c.parquet"),
        Job("data/t.csv", "out/t.csv"),
        Job("data/sub/a.txt", "out/sub/a.txt"),
    ]


def test_a_named_format_takes_all_files_of_a_folder(tree):
    names = [job.input for job in plan(["data"], None, "out", format="lines")]
    assert names == [
        "data/c.parquet",
        "data/notes.md",
        "data/t.csv",
        "data/x.json",
        "data/sub/a.txt",
    ]


def test_an_output_folder_inside_the_input_is_not_read(tree):
    os.makedirs("data/out/sub")
    (tree / "data/out/sub/a.txt").write_bytes(b"")
    assert len(plan(["data"], None, "data/out")) == 3


@pytest.mark.parametrize("format", [None, "lines"])
def test_what_an_incomplete_run_left_is_no_input(tree, format):
    before = plan(["data"], None, "out", format=format)
    left = ["o.parquet.parts/0.parquet", "o.txt.part", "o.txt.part.json", "o.txt.part.json.tmp"]
    for name in [*left, "o.txt.gz.part.gz", "o.txt.zst.part.zst"]:
        path = tree / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert plan(["data"], None, "out", format=format) == before


def test_a_glob_is_mirrored_below_its_fixed_part(tree):
    assert plan(["data/**/*.txt", "*.txt"], None, "out") == [
        Job("data/sub/a.txt", "out/sub/a.txt"),
        Job("a.txt", "out/a.txt"),
    ]


def test_a_file_with_magic_letters_in_its_name_is_a_file(tree):
    (tree / "x[1].txt").write_bytes(b"")
    assert plan(["x[1].txt"], None, "out") == [Job("x[1].txt", "out/x[1].txt")]


def test_a_file_given_twice_counts_once(tree):
    assert len(plan(["a.txt", "*.txt"], None, "out")) == 1


def test_a_file_named_twice_is_refused(tree):
    with pytest.raises(UsageError, match="a.txt: named twice"):
        plan(["a.txt", "b.jsonl.gz", "a.txt"], None, "out")


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"fields": ("title",)}, "--field"),
        ({"output_field": "x"}, "--output-field"),
        ({"source_field": "x"}, "--src-field"),
        ({"target_field": "x"}, "--tgt-field"),
    ],
)
def test_lines_have_no_fields(options, flag):
    lines, rows = Job("a.txt", None), Job("a.jsonl", None)
    refuse_fields_of_lines([lines, rows], None, IoOptions(**options))
    refuse_fields_of_lines([lines], None, IoOptions())
    with pytest.raises(UsageError, match=f"^{flag}: lines have no fields"):
        refuse_fields_of_lines([lines], None, IoOptions(**options))


def test_lines_into_several_languages_go_to_a_file_each(tree):
    (tree / "d.txt.gz").write_bytes(b"")
    jobs = plan(["a.txt", "b.jsonl.gz", "d.txt.gz"], None, "out", has_file_per_target=True)
    assert [job.output for job in jobs] == [
        "out/a.{tgt}.txt", "out/b.jsonl.gz", "out/d.{tgt}.txt.gz"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "output", "output_dir", "message"),
    [
        (["a.txt"], "x", "y", "-o and --output-dir: choose one of them"),
        (["a.txt", "b.jsonl.gz"], "x", None, "-o x: there are 2 inputs; --output-dir"),
        (["a.txt", "data/sub/a.txt"], None, "out", "out/a.txt: both a.txt and data/sub/a.txt"),
        (["a.txt"], "./a.txt", None, "-o ./a.txt: this is the input"),
        (["a.txt"], None, ".", "a.txt: this is an input"),
        (["-"], None, "out", "--output-dir: stdin has no name"),
        (["a.txt", "b.jsonl.gz"], None, None, "2 inputs of jsonl, lines make no single output"),
        (["t.csv", "data/t.csv"], None, None, "2 inputs of csv make no single output"),
    ],
)
def test_what_does_not_fit_is_refused(tree, inputs, output, output_dir, message):
    with pytest.raises(UsageError, match=message):
        plan(inputs, output, output_dir)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.txt", "^nothing.txt: no such file$"),
        ("nothing*.txt", "no file matches$"),
        ("empty", "empty: no files of a known suffix"),
    ],
)
def test_what_is_not_there_is_named(tree, name, message):
    os.mkdir("empty")
    with pytest.raises(InputError, match=message):
        plan([name], None, "out")


@pytest.mark.parametrize(
    "name",
    ["a.txt", "link.txt", "hard.txt", "o.fra_Latn.txt", "o.txt.status", "o.fra_Latn.txt.part"],
)
def test_a_record_or_log_is_no_input_or_output(tree, name):
    os.symlink("a.txt", "link.txt")
    os.link("a.txt", "hard.txt")
    jobs = [Job("a.txt", "o.{tgt}.txt")]
    for record, log in ((name, None), (None, name)):
        with pytest.raises(UsageError, match=f"{name}: this is an (in|out)put"):
            refuse_own_files(jobs, record, log)
    with pytest.raises(UsageError, match="choose two names"):
        refuse_own_files(jobs, "run.json", "./run.json")
    refuse_own_files(jobs, "run.json", "log.json")
    refuse_own_files(jobs, os.devnull, os.devnull)


def test_an_output_is_not_its_input_under_another_name(tree):
    os.link("a.txt", "hard.txt")
    with pytest.raises(UsageError, match="this is the input"):
        plan(["a.txt"], "hard.txt", None)
