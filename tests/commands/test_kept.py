"""A run that a bad row ended goes on with other options for such rows, to the bytes of one go."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli import cli
from nllb_cli.commands.kept import kept
from nllb_cli.errors import BadRowError

LONG = "a very long line " * 20
KEEP, CUT = ["--on-error", "keep"], ["--too-long", "cut"]
SUFFIXES = [".txt", ".jsonl", ".csv", ".parquet"]


def translate(source, out, *options):
    command = ["translate", "--src", "eng_Latn", "--tgt", "fra_Latn", str(source), "-o", str(out)]
    limits = ["--max-source-tokens", "30", "--beam", "1", "--quiet"]
    return int(cli.run([*command, *limits, *map(str, options)]))


def make(folder, suffix, texts):
    path = folder / f"in{suffix}"
    if suffix == ".txt":
        path.write_text("".join(text + "\n" for text in texts))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif suffix == ".csv":
        path.write_text("".join(f"{row}\n" for row in ["text,n", *(f"{t},1" for t in texts)]))
    else:
        pq.write_table(pa.table({"text": texts}), path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("options", [KEEP, CUT], ids=" ".join)
def test_a_bad_rows_remedy_goes_on_behind_the_rows_that_are_kept(tmp_path, capsys, suffix, options):
    texts = ["Good morning.", "", "Good morning."]
    source = make(tmp_path, suffix, [*texts, LONG, *texts])
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    code = 1 if options == KEEP else 0
    assert translate(source, out, "--status") == 3
    (line,) = capsys.readouterr().err.splitlines()
    is_table = suffix in (".csv", ".parquet")
    way = "--too-long cut" if is_table else "either"
    assert line.endswith(f"; 3 rows are kept, --resume goes on with {way}")
    if is_table and options == KEEP:  # all rows would have a column more
        assert translate(source, out, "--status", *options, "--resume") == 2
        assert "(--on-error was fail, now is keep)" in capsys.readouterr().err
        return
    assert translate(source, out, "--status", *options, "--resume") == code
    assert translate(source, whole, "--status", *options) == code
    assert out.read_bytes() == whole.read_bytes()
    if suffix == ".txt":
        statuses = [tmp_path / f"{name}.txt.status" for name in ("whole", "out")]
        assert statuses[0].read_bytes() == statuses[1].read_bytes()


def test_a_row_that_an_option_made_what_it_is_keeps_the_option(tmp_path, capsys):
    source = make(tmp_path, ".jsonl", ["Good morning.", LONG, "Thank you."])
    with source.open("a") as file:
        file.write("{}\n")
    out = tmp_path / "out.jsonl"
    assert translate(source, out, *CUT) == 3
    told = "; 3 rows are kept, --resume goes on with --on-error keep\n"
    assert capsys.readouterr().err.endswith(told)
    assert translate(source, out, "--resume") == 2
    assert "(--too-long was cut, now is error)" in capsys.readouterr().err
    assert translate(source, out, *CUT, *KEEP, "--resume") == 1


def test_where_nothing_can_go_on_that_is_said(tmp_path, capsys):
    source = make(tmp_path, ".csv", ["Good morning.", "Thank you.", "a,b,c"])
    assert translate(source, tmp_path / "out.csv") == 3
    told = "; --overwrite is needed then, which translates the 2 rows before it again\n"
    assert capsys.readouterr().err.endswith(f"--on-error keep{told}")
    first = make(tmp_path, ".jsonl", ["Good morning."])
    first.write_text("{}\n" + first.read_text())
    assert translate(first, tmp_path / "out.jsonl") == 3
    assert capsys.readouterr().err.endswith("--on-error keep\n")


def test_one_row_is_kept_and_of_many_tables_nothing_is_said():
    assert kept(BadRowError("a:2: b", "lines"), 1, 1).startswith("; 1 row is kept, ")
    assert kept(BadRowError("a:2: b", "csv"), 1, 2) == ""
