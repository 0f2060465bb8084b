"""What this machine does with a model: rates, start-up, memory, and where the time goes."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from time import perf_counter

from nllb_cli.errors import UsageError
from nllb_cli.options import DecodeOptions
from nllb_cli.pipeline import Translator
from nllb_cli.records import Record
from nllb_cli.stream import RunStats, StreamOptions
from nllb_cli.text.segments import SplitRules

WANTED_S = 8.0
"""How long the measured run takes, if the sample is large enough."""
FEW_LINES = 16
MANY_LINES = 10_000
TARGETS = ("French", "German", "Spanish", "Russian", "Chinese")


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured; the fields' names are those of `--json`."""

    model: str
    device: str
    dtype: str
    beam: int
    source_lang: str
    target_lang: str
    load_s: float
    """Weights from disk to where they stay, and the engine around them."""
    first_line_s: float
    """One line, right after that."""
    one_line_s: float
    """One line, once everything has run."""
    lines: int
    lines_s: float
    lines_first_s: float
    """Until the first of them came out."""
    rows_per_s: float
    source_tokens_per_s: float
    tokens_per_s: float
    """Of the translations, `</s>` included."""
    slots: int
    """Rows that are decoded together."""
    memory_bytes: int
    """The most that was taken: of the GPU's memory, or by the process on a CPU."""
    encode_share: float
    decode_share: float
    rest_share: float
    """Part of the time in which the device had nothing to do."""


def sample_lines(count: int) -> list[str]:
    """Return so many different lines: single sentences, then all pairs of them."""
    sentences = files("nllb_cli").joinpath("sample.txt").read_text(encoding="utf-8").splitlines()
    num = len(sentences)
    if not 1 <= count <= num * num:
        raise UsageError(f"--lines {count}: choose 1 to {num * num}")
    pairs = (
        f"{first} {sentences[(index + distance) % num]}"
        for distance in range(1, num)
        for index, first in enumerate(sentences)
    )
    return sentences[:count] + [pair for pair, _ in zip(pairs, range(count - num), strict=False)]


def measure(
    translator: Translator, decode: DecodeOptions, target: str | None, num_lines: int | None
) -> Report:
    """Translate parts of the sample until one takes long enough; report on that one."""
    if len(translator.devices) > 1:
        raise UsageError("nllb bench measures one device: choose it with --device cuda:N")
    languages = (translator.language("English").code, _target(translator, target))
    wanted = sample_lines(num_lines) if num_lines else None  # refused before the model loads
    start = perf_counter()
    translator.load(decode)
    load_s = perf_counter() - start
    bench = _Bench(translator, decode, languages)
    # three different ones: the second still meets what is new to it
    first_line, _, one_line = [bench.run([line]) for line in sample_lines(3)]
    run = bench.run(wanted) if wanted else bench.run_long_enough()
    if run.seconds < WANTED_S and translator.is_on_gpu:
        run = bench.run(run.lines)  # by now every graph that it needs is there
    return bench.report(load_s, first_line, one_line, run)


def _target(translator: Translator, asked: str | None) -> str:
    if asked is not None:
        return translator.language(asked).code
    for name in TARGETS:
        try:
            return translator.language(name).code
        except UsageError:
            continue
    return next(iter(translator.tokenizer.languages))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run over some lines."""

    lines: Sequence[str]
    seconds: float
    first_s: float
    stats: RunStats
    shares: dict[str, float]


class _Bench:
    """A loaded model with its settings."""

    def __init__(
        self, translator: Translator, decode: DecodeOptions, languages: tuple[str, str]
    ) -> None:
        self._translator = translator
        self._decode = decode
        self._languages = languages

    def run(self, lines: Sequence[str]) -> _Run:
        """Translate lines, text in, text out."""
        import torch

        from nllb_cli.engine.timing import part_times

        translator = self._translator
        rules = translator.rules(None, SplitRules(too_long="cut"))
        options = StreamOptions(rules, "keep", translator.limits)
        start, first_s = perf_counter(), 0.0
        with part_times(torch.device(translator.devices[0])) as times:
            stream, chunks = translator.stream(self._records(lines), self._decode, options)
            for chunk in chunks:
                if chunk and not first_s:
                    first_s = perf_counter() - start
            seconds = perf_counter() - start
            shares = times.shares(seconds)
        return _Run(lines, seconds, first_s, stream.stats, shares)

    def run_long_enough(self) -> _Run:
        """Translate more and more of the sample."""
        num_lines = FEW_LINES
        while True:
            run = self.run(sample_lines(num_lines))
            if num_lines == MANY_LINES or run.seconds > WANTED_S / 2:
                return run
            num_lines = min(int(num_lines * min(WANTED_S / run.seconds, 16)), MANY_LINES)

    def _records(self, lines: Sequence[str]) -> Iterator[Record]:
        source, target = self._languages
        for index, line in enumerate(lines):
            yield Record(index, (line,), source, (target,))

    def report(self, load_s: float, first_line: _Run, one_line: _Run, run: _Run) -> Report:
        """Put everything together."""
        translator, stats = self._translator, run.stats
        return Report(
            model=str(translator.directory),
            device=self._device_name(),
            dtype=translator.numbers["dtype"],
            beam=self._decode.beam_size,
            source_lang=self._languages[0],
            target_lang=self._languages[1],
            load_s=round(load_s, 3),
            first_line_s=round(first_line.seconds, 3),
            one_line_s=round(one_line.seconds, 3),
            lines=len(run.lines),
            lines_s=round(run.seconds, 3),
            lines_first_s=round(run.first_s, 3),
            rows_per_s=round(stats.rows / run.seconds, 1),
            source_tokens_per_s=round(stats.source_tokens / run.seconds, 1),
            tokens_per_s=round(stats.target_tokens / run.seconds, 1),
            slots=self._num_slots(),
            memory_bytes=self._memory_bytes(),
            **{f"{part}_share": round(share, 4) for part, share in run.shares.items()},
        )

    def _device_name(self) -> str:
        import torch

        device = self._translator.devices[0]
        if device == "cpu":
            return f"CPU, {torch.get_num_threads()} threads"
        return f"{device}, {torch.cuda.get_device_name(device)}"

    def _num_slots(self) -> int:
        from nllb_cli.engine.engine import PlainEngine
        from nllb_cli.engine.slot_engine import SlotEngine

        engine = self._translator.load(self._decode)
        if isinstance(engine, SlotEngine):
            return engine.shape.num_slots if engine.shape else 0
        return engine.num_slots if isinstance(engine, PlainEngine) else 0

    def _memory_bytes(self) -> int:
        import resource

        import torch

        device = self._translator.devices[0]
        if device != "cpu":
            return torch.cuda.max_memory_reserved(device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
