"""Text in, text out: the whole program beside its engine alone, and how long the GPU waited.

    python benchmarks/translate.py FILE --model DIR --src eng_Latn --tgt fra_Latn [--beam 4]

FILE holds one text a line. Measured in one process, warmed up, best of `--turns`:

    engine      tokens made before, integers in, integers out
    translator  the same lines through the library door, text in, text out
    command     `nllb translate FILE -o …` as a process of its own, without and with its start-up

tokens/s counts the tokens of the best hypotheses and their `</s>`. The share of time that the
device waited is what encoding and decoding leave of one more run, by the GPU's own events.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from nllb_cli.engine.timing import part_times
from nllb_cli.errors import NllbError
from nllb_cli.options import DecodeOptions
from nllb_cli.pipeline import Translator
from nllb_cli.records import Batch, Record
from nllb_cli.stream import StreamOptions
from nllb_cli.text.buckets import Window
from nllb_cli.text.segments import SplitRules, Splitter


@dataclass(slots=True)
class Measured:
    """One way to translate the file."""

    name: str
    seconds: float
    num_rows: int
    num_tokens: int
    waited: float | None = None

    @property
    def row(self) -> dict[str, object]:
        return {
            "what": self.name,
            "seconds": round(self.seconds, 3),
            "rows_per_s": round(self.num_rows / self.seconds, 1),
            "tokens_per_s": round(self.num_tokens / self.seconds, 1),
            "waited": None if self.waited is None else round(self.waited, 4),
        }


class Batches:
    """Batches that are all there from the start."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches[::-1]

    @property
    def is_exhausted(self) -> bool:
        return not self.batches

    def take(self, wait: bool) -> Batch | None:
        return self.batches.pop() if self.batches else None


class Job:
    """The file, the model, and each way to put one through the other."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        start = time.perf_counter()
        self.translator = Translator(
            arguments.model, arguments.device, arguments.dtype, gpu_memory=arguments.gpu_memory
        )
        self.decode = DecodeOptions(arguments.beam)
        self.engine = self.translator.load(self.decode)
        self.load_s = time.perf_counter() - start
        self.source = self.translator.language(arguments.src).code
        self.target = self.translator.language(arguments.tgt).code
        text = arguments.file.read_text(encoding="utf-8")
        self.lines = text.split("\n")[: arguments.lines]
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self.rules = self.translator.rules(None, SplitRules(too_long="cut"))

    def records(self) -> Iterator[Record]:
        for index, line in enumerate(self.lines):
            yield Record(index, (line,), self.source, (self.target,))

    def batches(self) -> list[Batch]:
        """What the stream hands to the engine, made before."""
        splitter = Splitter(self.translator.tokenizer, self.rules)
        window = Window(self.translator.limits)
        batches, records = [], list(self.records())
        for first in range(0, len(records), 512):
            window.add(splitter.split(records[first : first + 512]))
            if window.is_full:
                batches += window.empty()
        return batches + window.empty()

    def run_engine(self, batches: list[Batch]) -> Measured:
        start = time.perf_counter()
        num_tokens = 0
        for _, hypotheses in self.engine.translate(Batches(batches)):
            num_tokens += sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses)
        return Measured("engine", time.perf_counter() - start, len(self.lines), num_tokens)

    def run_translator(self) -> Measured:
        start = time.perf_counter()
        options = StreamOptions(self.rules, limits=self.translator.limits)
        stream, chunks = self.translator.stream(self.records(), self.decode, options)
        num_rows = sum(len(chunk) for chunk in chunks)
        assert num_rows == len(self.lines), "a row was lost"
        seconds = time.perf_counter() - start
        return Measured("translator", seconds, num_rows, stream.stats.target_tokens)

    def run_command(self) -> list[Measured]:
        arguments = self.arguments
        with tempfile.TemporaryDirectory() as folder:
            source, output, record = (Path(folder) / name for name in ("in.txt", "out.txt", "r"))
            source.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
            command = [
                sys.executable, "-m", "nllb_cli", "translate", source, "-o", output,
                "--src", self.source, "--tgt", self.target, "--beam", arguments.beam,
                "--model", self.translator.directory, "--device", arguments.device,
                "--dtype", arguments.dtype, "--gpu-memory", arguments.gpu_memory,
                "--too-long", "cut", "--record", record, "--quiet",
            ]  # fmt: skip
            start = time.perf_counter()
            subprocess.run([str(word) for word in command], check=True)
            seconds = time.perf_counter() - start
            found = json.loads(record.read_text())
            num_rows = output.read_text(encoding="utf-8").count("\n")
            assert num_rows == len(self.lines), "a row was lost"
        tokens = found["tokens"]["target"]
        return [
            Measured("command, model loaded", found["seconds"], num_rows, tokens),
            Measured("command, start to end", seconds, num_rows, tokens),
        ]


def with_waiting(job: Job, measured: Measured, run) -> Measured:
    """Run once more under the device's own clock and note which share of the time it waited."""
    with part_times(torch.device(job.translator.devices[0])) as times:
        again = run()
        measured.waited = times.shares(again.seconds)["rest"]
    return measured


def measure(job: Job) -> list[Measured]:
    turns = range(job.arguments.turns)
    batches = job.batches()

    def run_engine() -> Measured:
        return job.run_engine(batches)

    cold = run_engine()
    cold.name = "engine, first run"
    engine = min((run_engine() for _ in turns), key=lambda m: m.seconds)
    engine = with_waiting(job, engine, run_engine)
    job.run_translator()
    translator = min((job.run_translator() for _ in turns), key=lambda m: m.seconds)
    translator = with_waiting(job, translator, job.run_translator)
    job.translator.close()  # the command needs the memory
    job.engine = None
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    command = [] if job.arguments.no_command else job.run_command()
    return [cold, engine, translator, *command]


def print_table(job: Job, found: list[Measured]) -> None:
    arguments, place = job.arguments, job.translator.numbers
    device = job.translator.devices[0]
    name = torch.cuda.get_device_name(device) if device != "cpu" else "CPU"
    print(
        f"{job.translator.directory.name} on {name}, torch {torch.__version__}, {place['dtype']}, "
        f"beam {arguments.beam}, {len(job.lines):,} lines, model loaded in {job.load_s:.2f} s\n"
    )
    print("| what | seconds | rows/s | tokens/s | of the engine's rate | device waited |")
    print("|---|---|---|---|---|---|")
    engine = next(m for m in found if m.name == "engine")
    for measured in found:
        row = measured.row
        ratio = row["tokens_per_s"] / engine.row["tokens_per_s"]
        waited = "" if measured.waited is None else f"{measured.waited:.1%}"
        print(
            f"| {measured.name} | {measured.seconds:.2f} | {row['rows_per_s']:,} "
            f"| {row['tokens_per_s']:,} | {ratio:.1%} | {waited} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", help="directory or hub id; without it, the bundled model")
    parser.add_argument("--src", default="eng_Latn")
    parser.add_argument("--tgt", default="fra_Latn")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--lines", type=int, help="only the first so many")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--gpu-memory", type=float, default=0.9)
    parser.add_argument("--no-command", action="store_true", help="leave the command out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        job = Job(arguments)
        found = measure(job)
    except NllbError as error:
        sys.exit(str(error))
    if arguments.json:
        print(json.dumps([measured.row for measured in found]))
    else:
        print_table(job, found)


if __name__ == "__main__":
    main()
