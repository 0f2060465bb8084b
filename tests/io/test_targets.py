"""Outputs that cannot be written are refused, whatever the run."""

import os

import pytest

from nllb_cli.errors import UsageError
from nllb_cli.io.targets import is_same_file
from tests.io.pump import pump


def lines(folder):
    path = folder / "in.txt"
    path.write_text("A row.\n")
    return path


@pytest.mark.parametrize("mode", ["new", "overwrite"])
def test_what_is_no_file_is_never_replaced_by_one(tmp_path, mode):
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    (tmp_path / "link").symlink_to(pipe)
    for target, told in (
        (pipe, "is no file"),
        (tmp_path / "link", "is no file"),
        (folder, "folder"),
    ):
        with pytest.raises(UsageError, match=told):
            pump(lines(tmp_path), target, mode=mode)
    assert pipe.is_fifo()


def test_a_folder_that_is_absent_is_named(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        pump(lines(tmp_path), tmp_path / "none" / "out.txt")


@pytest.mark.parametrize("end", [".part", ".part.json", ".part.json.tmp", ".part.gz"])
def test_the_name_of_an_unfinished_file_is_refused(tmp_path, end):
    target = tmp_path / f"out.txt{end}"
    for mode in ("new", "overwrite", "resume"):
        with pytest.raises(UsageError, match=r"unfinished outputs end in \.part\S*; choose"):
            pump(lines(tmp_path), target, mode=mode)
    assert not target.exists()
    assert pump(lines(tmp_path), tmp_path / "out.part.txt") == 1


def test_one_file_has_many_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path)
    os.symlink("in.txt", "link.txt")
    os.link("in.txt", "hard.txt")
    for other in ("./in.txt", "link.txt", "hard.txt", str(tmp_path / "in.txt")):
        assert is_same_file("in.txt", other)
    assert is_same_file("absent.txt", "./absent.txt")
    assert not is_same_file("in.txt", "absent.txt")
