"""The stream without a model: lines in, lines out, through a fake engine and a fake tokeniser.

    python benchmarks/stream.py [ROWS ...]

What remains is all that is not the engine: reading, windows, batches, order, writing with fsync.
Each size runs in a process of its own; peak memory is the process's, its imports included.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)]
from nllb_cli.commands.run import _tune_garbage_collection
from nllb_cli.jobs import JobOptions, JobRun, Slice
from nllb_cli.options import IoOptions
from nllb_cli.plan import Job
from nllb_cli.records import BatchSource, Hypothesis, Segment
from nllb_cli.stream import Stream, StreamOptions
from nllb_cli.text.buckets import Limits


class EchoEngine:
    """Gives each source back as its translation, by falling length, as batches have it."""

    def translate(self, source: BatchSource) -> Iterator[tuple[Segment, tuple[Hypothesis, ...]]]:
        """Yield each segment of each batch."""
        while not source.is_exhausted:
            batch = source.take(wait=True)
            for segment in batch.segments if batch else []:
                yield segment, (Hypothesis(segment.source_tokens, -1.0, "eos"),)

    def close(self) -> None:
        """Nothing to give back."""


class LabelCodec:
    """Remembers texts by number: next to no work, and as many tokens as a tokeniser would make."""

    languages = {"eng_Latn": 300, "fra_Latn": 302}
    filler = [7] * 1000
    unk_id = -1

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._num_texts = 0

    def encode(self, texts: list[str], source_lang: str) -> list[list[int]]:
        """Return language token, number, a filler for every four letters, and end of each text."""
        rows = []
        for number, text in enumerate(texts, self._num_texts):
            self._texts[number] = text
            rows.append([300, number, *self.filler[: len(text) // 4], 301])
        self._num_texts += len(texts)
        return rows

    def knows(self, text: str) -> bool:
        """Return True."""
        return True

    def cut(self, source: list[int], max_tokens: int) -> list[int]:
        """Return the first tokens and the end."""
        return [*source[: max_tokens - 1], 301]

    def decode(self, sequences: list[list[int]]) -> list[str]:
        """Return the texts."""
        return [self._texts.pop(tokens[1]) for tokens in sequences]


def write_lines(path: Path, num_rows: int) -> None:
    """Lines of 20 to 60 characters, none twice."""
    with path.open("w") as file:
        for start in range(0, num_rows, 100_000):
            stop = min(start + 100_000, num_rows)
            file.writelines(
                f"row {n} of a corpus {'x' * (n * 37 % 41)}\n" for n in range(start, stop)
            )


def measure(source: Path, target: Path, num_rows: int) -> dict[str, float]:
    """Run the whole chain once."""
    io = IoOptions("eng_Latn", ("fra_Latn",))
    job_run = JobRun([Job(str(source), str(target))], JobOptions(io, None, "new", Slice(), False))
    stream = Stream(EchoEngine(), LabelCodec(), StreamOptions(limits=Limits(), pause_s=None))
    _tune_garbage_collection()  # as the command does
    start, started = time.perf_counter(), time.process_time()
    for chunk in stream.run(job_run.records()):
        job_run.write(chunk)
    job_run.close()
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "rows": num_rows,
        "rows_per_s": round(num_rows / seconds),
        "cpu_us_per_row": round((time.process_time() - started) / num_rows * 1e6, 2),
        "peak_mib": round(used.ru_maxrss / 1024),
    }


def main() -> None:
    """Measure each size in its own process and check that nothing was lost or misplaced."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, default=[10_000, 1_000_000, 5_000_000])
    parser.add_argument("--one", nargs=2, metavar=("IN", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        source, target = map(Path, arguments.one)
        print(json.dumps(measure(source, target, arguments.rows[0])))
        return
    for num_rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "in.txt"), Path(folder, "out.txt")
            write_lines(source, num_rows)
            command = [sys.executable, __file__, str(num_rows), "--one", str(source), str(target)]
            subprocess.run(command, check=True)
            same = subprocess.run(["cmp", str(source), str(target)], check=False).returncode == 0
            assert same, "rows were lost or misplaced"


if __name__ == "__main__":
    main()
