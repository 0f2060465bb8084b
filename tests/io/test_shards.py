"""Names of shards: what is missing or misplaced is named, what says nothing is let through."""

import pytest

from nllb_cli.errors import InputError, UsageError
from nllb_cli.io.shards import check_names, expand, refuse_unfinished


@pytest.mark.parametrize(
    "names",
    [
        ["a.txt"],
        ["a1.txt"],
        ["b.txt", "a.txt"],
        ["a-1.txt", "a-2.txt"],
        ["a0", "a1", "a2"],
        [f"a-{n}.txt" for n in range(1, 13)],
        [f"a{n:02}.txt" for n in range(1, 13)],
        ["run/1/out.txt", "run/2/out.txt"],
        ["out-1-of-2.txt", "out-2-of-2.txt"],
        ["out.0of2.txt", "out.1of2.txt"],
        ["1-of-1.txt"],
        ["2019.txt", "2021.txt"],  # no shards' numbers, but years
        ["5.txt", "6.txt"],
        ["x1y2.txt", "x2y1.txt"],
        ["1.txt", "two.txt"],
    ],
)
def test_shards_in_order_and_names_that_say_nothing_pass(names):
    check_names(names)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a.txt", "b.txt", "a.txt"], "a.txt: named twice"),
        (["a-1", "a-10", *[f"a-{n}" for n in range(2, 10)]], "a-10: stands where a-2 belongs"),
        (["a2", "a1"], "a2: stands where a1 belongs"),
        (["a1", "a0"], "a1: stands where a0 belongs"),
        (["a1", "a3"], "a2: this shard is missing"),
        (["a1", "a123456789123456"], "a2: this shard is missing"),
        (["a01", "a02", "a04"], "a03: this shard is missing"),
        (["a2", "a3"], "a1: this shard is missing"),
        (["a1-of-3", "a2-of-3"], "a3-of-3: this shard is missing"),
        (["a0-of-3", "a1-of-3"], "a2-of-3: this shard is missing"),
        (["a2-of-3"], "a1-of-3: this shard is missing"),
        (["a1-of-2", "a2-of-2", "a3-of-2"], "a3-of-2: one too many"),
        (["a1", "a01", "a2"], "a01: one too many"),
    ],
)
def test_what_is_missing_or_misplaced_is_named(names, told):
    with pytest.raises(UsageError, match=rf"^{told}.*--as-given"):
        check_names(names)


def test_a_glob_is_put_in_the_order_of_the_numbers_without_status_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 10, 11):
        (tmp_path / f"out-{number}.txt").touch()
        (tmp_path / f"out-{number}.txt.status").touch()
    (tmp_path / "odd[1].txt").touch()
    assert expand(["out-*"]) == ["out-1.txt", "out-2.txt", "out-10.txt", "out-11.txt"]
    assert expand(["odd[1].txt", "b.txt", "out-?.txt"]) == [
        *["odd[1].txt", "b.txt"],
        *["out-1.txt", "out-2.txt"],
    ]
    with pytest.raises(InputError, match="no file matches"):
        expand(["none-*.txt"])


def test_what_is_unfinished_is_refused_with_the_way_to_finish_it():
    with pytest.raises(UsageError, match=r"^b\.txt\.part: .* --resume makes b\.txt of it"):
        refuse_unfinished(["a.txt", "b.txt.part"])
