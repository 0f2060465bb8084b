"""Shards put together are the whole run's output."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nllb_cli import cli

TEXTS = ["Good morning.", "", "Thank you.", "I am hungry.", None, "Where is the station?", "Bye."]


def write(path):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": TEXTS, "id": range(7)}), path, row_group_size=3)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    else:
        path.write_text("".join(f"{text or ''}\n" for text in TEXTS))


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".parquet"])
def test_three_shards_are_the_whole(tmp_path, suffix, capfd):
    source, whole, merged = (tmp_path / f"{name}{suffix}" for name in ("in", "whole", "merged"))
    write(source)
    command = ["translate", str(source), "--src", "en", "--tgt", "fr", "--beam", "1", "-o"]
    assert cli.run([*command, str(whole)]) == 0
    shards = [str(tmp_path / f"{i}{suffix}") for i in (1, 2, 3)]
    for number, shard in enumerate(shards, 1):
        assert cli.run([*command, shard, "--shard", f"{number}/3"]) == 0
    capfd.readouterr()
    assert cli.run(["merge", *shards, "-o", str(merged)]) == 0
    assert "7 rows of 3 shards in " in capfd.readouterr().err
    if suffix == ".parquet":
        assert pq.read_table(merged).equals(pq.read_table(whole))
    else:
        assert merged.read_bytes() == whole.read_bytes()


def test_what_cannot_be_merged_is_one_line(tmp_path, capfd):
    first, target = tmp_path / "1.txt", tmp_path / "all.txt"
    first.write_text("a\n")
    target.write_text("kept\n")
    assert cli.run(["merge", str(first), "-o", str(target)]) == 2
    assert cli.run(["merge", str(tmp_path / "2.txt"), "-o", str(tmp_path / "new.txt")]) == 3
    assert target.read_text() == "kept\n"
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "--overwrite" in lines[0]
    assert "2.txt" in lines[1]


def test_shards_out_of_order_or_incomplete_are_refused_unless_meant(tmp_path, capfd):
    shards = [tmp_path / f"out-{number}-of-3.txt" for number in (1, 2, 3)]
    for shard in shards:
        shard.write_text(shard.name + "\n")
    target = tmp_path / "all.txt"
    first, second, third = map(str, shards)
    assert cli.run(["merge", first, third, second, "-o", str(target)]) == 2
    assert cli.run(["merge", first, second, "-o", str(target)]) == 2
    assert not target.exists()
    misplaced, missing = capfd.readouterr().err.splitlines()
    assert misplaced.startswith(f"nllb: {third}: stands where {second} belongs")
    assert missing.startswith(f"nllb: {third}: this shard is missing")
    assert cli.run(["merge", first, third, second, "-o", str(target), "--as-given"]) == 0
    assert target.read_text().split() == [path.name for path in (shards[0], shards[2], shards[1])]


def test_statuses_are_merged_or_said_to_be_left_out(tmp_path, capfd):
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text("A\n")
    (tmp_path / "1.txt.status").write_text("ok\n")
    command = ["merge", *(str(tmp_path / f"{n}.txt") for n in (1, 2)), "-o", str(tmp_path / "all")]
    assert cli.run(command) == 0
    said = capfd.readouterr().err.splitlines()
    assert said == [
        f"nllb: {tmp_path}/2.txt.status: no such file, statuses are left out",
        f"nllb: 2 rows of 2 shards in {tmp_path}/all",
    ]
    (tmp_path / "2.txt.status").write_text("ok\n")
    assert cli.run([*command, "--overwrite"]) == 0
    assert (tmp_path / "all.status").read_text() == "ok\nok\n"
    (tmp_path / "2.txt.status").unlink()
    capfd.readouterr()
    assert cli.run([*command, "--overwrite"]) == 0
    said = capfd.readouterr().err.splitlines()
    assert said[1] == f"nllb: {tmp_path}/all.status: removed, it was of the rows before"
    assert not (tmp_path / "all.status").exists()


def test_a_glob_in_quotes_finds_the_shards_and_one_that_is_unfinished(tmp_path, capfd):
    for number in (1, 2, 10):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
    command = ["merge", str(tmp_path / "*.txt*"), "-o", str(tmp_path / "all"), "--as-given"]
    assert cli.run(command) == 0
    assert (tmp_path / "all").read_text() == "1\n2\n10\n"
    assert "3 rows of 3 shards" in capfd.readouterr().err
    (tmp_path / "2.txt").rename(tmp_path / "2.txt.part")
    assert cli.run([*command, "--overwrite"]) == 2
    assert "2.txt.part: unfinished; its own command with --resume" in capfd.readouterr().err
