"""Our engine on a CPU beside transformers and CTranslate2: same sentences, same run, one table.

    python benchmarks/cpu.py DATA [--sentences 2000] [--beam 4]
    python benchmarks/cpu.py DATA --check 300

DATA is a folder of LANG-LANG.dev.tsv.gz files (two columns); each is taken in both directions.
Tokens are those of the best hypotheses, `</s>` included, language token and padding not.
`--check` compares tokens and scores with transformers instead, at beams 1, 4 and 5.
"""

import argparse
import gc
import gzip
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

# transformers would take kernels.py in this folder for the package of that name
HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]

import nllb_cli
from nllb_cli.engine.engine import PlainEngine
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions, default_target_limit
from nllb_cli.records import Batch, Record, Segment
from nllb_cli.text.tokenizer import Tokenizer, load_tokenizer

MODEL = Path(nllb_cli.__file__).parent / "demo_model"
CPU = torch.device("cpu")
EOS, PAD = 2, 1


@dataclass(slots=True)
class Row:
    """One sentence to translate."""

    source: list[int]
    target_id: int
    direction: str
    reference: str

    @property
    def limit(self) -> int:
        return default_target_limit(len(self.source) - 2)


def read_rows(folder: Path, tokenizer: Tokenizer, num_sentences: int) -> list[Row]:
    """Return equally many sentences of each direction, shuffled by none."""
    rows = []
    files = sorted(folder.glob("*.dev.tsv.gz"))
    if not files:
        sys.exit(f"{folder}: no LANG-LANG.dev.tsv.gz in it, such as eng_Latn-fra_Latn.dev.tsv.gz")
    per_direction = -(-num_sentences // (2 * len(files)))
    for file in files:
        first, second = file.name.split(".")[0].split("-")
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            pairs = [line.rstrip("\n").split("\t") for line in lines][:per_direction]
        for source, target, column in ((first, second, 0), (second, first, 1)):
            texts = [pair[column] for pair in pairs]
            for ids, pair in zip(tokenizer.encode(texts, source), pairs, strict=True):
                target_id = tokenizer.language_id(target)
                rows.append(Row(ids, target_id, f"{source}-{target}", pair[1 - column]))
    return rows[:num_sentences]


class ListSource:
    """Batches that are all there from the start."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches[::-1]

    @property
    def is_exhausted(self) -> bool:
        return not self.batches

    def take(self, wait: bool) -> Batch | None:
        return self.batches.pop() if self.batches else None


class Ours:
    """The engine under test."""

    def __init__(
        self, beam: int, dtype: torch.dtype, num_tokens: int, slots: int | None, lanes: int | None
    ) -> None:
        parameters = load_parameters(MODEL, CPU, dtype)
        self.engine = PlainEngine(parameters, DecodeOptions(beam), num_tokens, slots, lanes)

    def __call__(self, rows: list[Row]) -> list[list[int]]:
        record = Record(0, ("",), "", ("",))
        segments = [
            Segment(record, 0, index, 1, row.source, (row.target_id,), row.limit)
            for index, row in enumerate(rows)
        ]
        segments.sort(key=lambda segment: -len(segment.source_tokens))
        batches = [Batch(segments[i : i + 128]) for i in range(0, len(segments), 128)]
        self.results = [None] * len(rows)
        for segment, (hypothesis,) in self.engine.translate(ListSource(batches)):
            self.results[segment.part] = hypothesis
        return [hypothesis.tokens for hypothesis in self.results]


class Transformers:
    """`generate`, sorted by length, one direction a batch."""

    def __init__(self, beam: int, batch_rows: int) -> None:
        from transformers import M2M100ForConditionalGeneration

        self.model = M2M100ForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32)
        self.model.generation_config.max_length = None
        self.model.eval()
        self.beam, self.batch_rows = beam, batch_rows

    def __call__(self, rows: list[Row]) -> list[list[int]]:
        results: list[list[int]] = [[] for _ in rows]
        by_target = defaultdict(list)
        for index, row in enumerate(rows):
            by_target[row.target_id].append(index)
        for indices in by_target.values():
            indices.sort(key=lambda index: -len(rows[index].source))
            for start in range(0, len(indices), self.batch_rows):
                chunk = indices[start : start + self.batch_rows]
                for index, tokens in zip(
                    chunk, self.generate([rows[i] for i in chunk]), strict=True
                ):
                    results[index] = tokens
        return results

    def generate(self, rows: list[Row]) -> list[list[int]]:
        width = max(len(row.source) for row in rows)
        tokens = torch.tensor([row.source + [PAD] * (width - len(row.source)) for row in rows])
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=tokens,
                attention_mask=(tokens != PAD).long(),
                num_beams=self.beam,
                do_sample=False,
                forced_bos_token_id=rows[0].target_id,
                max_new_tokens=max(row.limit for row in rows),
            )
        return [until_end(row) for row in output[:, 2:].tolist()]


class CTranslate2:
    """Converted here, of dummy token names; it sorts and batches by itself."""

    def __init__(self, beam: int, compute_type: str, batch_rows: int, folder: Path) -> None:
        import ctranslate2

        if not (folder / "model.bin").exists():
            convert(folder)
        self.translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type=compute_type,
            intra_threads=torch.get_num_threads(),
        )
        self.beam, self.batch_rows = beam, batch_rows

    def __call__(self, rows: list[Row]) -> list[list[int]]:
        results = self.translator.translate_batch(
            [[name_of(token) for token in row.source] for row in rows],
            target_prefix=[[name_of(row.target_id)] for row in rows],
            beam_size=self.beam,
            max_batch_size=self.batch_rows,
            max_decoding_length=max(row.limit for row in rows),
        )
        names = [result.hypotheses[0][1:] for result in results]
        return [[int(name[1:]) for name in row if name[0] == "t"] for row in names]


def name_of(token: int) -> str:
    return {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}.get(token, f"t{token}")


def convert(folder: Path) -> None:
    """Write the model in CTranslate2's form, in float32."""
    from ctranslate2.converters.transformers import M2M100Loader
    from transformers import M2M100ForConditionalGeneration

    model = M2M100ForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32)
    spec = M2M100Loader().get_model_spec(model)
    names = [name_of(token) for token in range(model.config.vocab_size)]
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "</s>"
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))


def until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(EOS)] if EOS in tokens else [t for t in tokens if t != PAD]


def mean_chrf(tokenizer: Tokenizer, rows: list[Row], found: list[list[int]]) -> float:
    """Return chrF averaged over the directions."""
    from sacrebleu import corpus_chrf

    texts = defaultdict(lambda: ([], []))
    for row, text in zip(rows, tokenizer.decode(found), strict=True):
        texts[row.direction][0].append(text)
        texts[row.direction][1].append(row.reference)
    scores = [corpus_chrf(ours, [refs]).score for ours, refs in texts.values()]
    return sum(scores) / len(scores)


def measure(translate, rows: list[Row]) -> tuple[float, list[list[int]]]:
    start = time.perf_counter()
    found = translate(rows)
    seconds = time.perf_counter() - start
    return sum(len(tokens) + 1 for tokens in found) / seconds, found


def race(rows: list[Row], tokenizer: Tokenizer, arguments: argparse.Namespace) -> None:
    """Time all engines, in turns as the machine may be busy; print the best of each."""
    beam = arguments.beam
    folder = Path(tempfile.mkdtemp()) / "ct2"
    makers = {
        "ours float32": lambda: Ours(
            beam, torch.float32, tokenizer.size, arguments.slots, arguments.lanes
        )
    }
    for size in arguments.hf_batch:
        makers[f"transformers float32, batch {size}"] = lambda size=size: Transformers(beam, size)
    for kind in ("float32", "int8"):
        for size in arguments.ct2_batch:
            makers[f"CTranslate2 {kind}, batch {size}"] = lambda size=size, kind=kind: CTranslate2(
                beam, kind, size, folder
            )
    if arguments.only:
        makers = {name: make for name, make in makers.items() if arguments.only in name}
    engines = {name: make() for name, make in makers.items()}
    gc.collect()
    rates, found = defaultdict(list), {}
    for translate in engines.values():
        translate(rows[:: max(len(rows) // 64, 1)])
    for turn in range(arguments.turns):
        for name, translate in engines.items():
            if turn and name.startswith("transformers"):
                continue
            rate, found[name] = measure(translate, rows)
            rates[name].append(rate)
    ours = max(next(iter(rates.values())))
    print(f"{len(rows)} sentences, beam {beam}, {torch.get_num_threads()} threads")
    for name, values in rates.items():
        chrf = mean_chrf(tokenizer, rows, found[name])
        print(
            f"{name:34} {max(values):7.0f} tok/s (of {len(values)}, least {min(values):.0f})  "
            f"ours is {ours / max(values):5.2f}x  chrF {chrf:.2f}"
        )


def check(rows: list[Row], num_tokens: int) -> None:
    """Compare tokens and scores with transformers, one row at a time."""
    for beam in (1, 4, 5):
        ours, theirs = Ours(beam, torch.float32, num_tokens, None, None), Transformers(beam, 1)
        found = ours(rows)
        different, worst = 0, 0.0
        for row, tokens, hypothesis in zip(rows, found, ours.results, strict=True):
            width = torch.tensor([row.source])
            with torch.inference_mode():
                output = theirs.model.generate(
                    input_ids=width,
                    attention_mask=torch.ones_like(width),
                    num_beams=beam,
                    do_sample=False,
                    forced_bos_token_id=row.target_id,
                    max_new_tokens=row.limit,
                    return_dict_in_generate=True,
                    output_scores=True,
                )
            different += until_end(output.sequences[0, 2:].tolist()) != tokens
            if beam > 1:
                worst = max(worst, abs(float(output.sequences_scores[0]) - hypothesis.score))
        print(f"beam {beam}: {different} of {len(rows)} rows differ, scores by {worst:.1e} at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--hf-batch", type=int, nargs="*", default=[32, 128])
    parser.add_argument("--ct2-batch", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--only", default="")
    parser.add_argument("--check", type=int, default=0)
    arguments = parser.parse_args()
    for name in () if arguments.only else ("transformers", "ctranslate2", "sacrebleu"):
        if find_spec(name) is None:
            sys.exit(f"{name} is not installed: pip install -e '.[bench]'")
    tokenizer = load_tokenizer(MODEL)
    rows = read_rows(arguments.data, tokenizer, arguments.check or arguments.sentences)
    if arguments.check:
        check(rows, tokenizer.size)
    else:
        race(rows, tokenizer, arguments)


if __name__ == "__main__":
    main()
