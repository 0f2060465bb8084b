"""The total of rows: counted, or estimated from bytes."""

import pytest

from nllb_cli.jobs import JobOptions, JobRun
from nllb_cli.options import IoOptions
from nllb_cli.plan import Job
from nllb_cli.progress import Progress
from nllb_cli.slices import Slice

IO = IoOptions(source_lang="eng_Latn", target_langs=("fra_Latn",))


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(num_rows, **options):
        (tmp_path / "a.txt").write_text("".join(f"row {n}\n" for n in range(num_rows)))
        made = JobRun([Job("a.txt", "out.txt")], JobOptions(IO, **options))
        made.check()
        return made

    return of


def test_the_total_is_estimated_until_all_is_read(run):
    made = run(100_000)
    assert made.progress.total is None
    records = made.records()
    for _ in range(5000):
        next(records)
    assert made.progress.is_estimate
    assert 5_000 <= made.progress.total < 300_000
    for _ in records:
        pass
    assert not made.progress.is_estimate
    assert made.progress.total == 100_000
    made.close()


def test_the_total_of_a_slice_is_known(run):
    progress = run(100, slice=Slice(shard=(1, 4))).progress
    assert (progress.total, progress.is_estimate) == (25, False)


def test_one_input_of_unknown_size_leaves_the_total_unknown():
    progress = Progress()
    progress.expect(100, None)
    progress.expect(None, None)
    progress.bytes_read = progress.read_before = 50
    assert progress.total is None
    assert progress.is_estimate
