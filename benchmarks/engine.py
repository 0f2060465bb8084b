"""Our engine beside transformers and CTranslate2: one model, one run, one table.

    python benchmarks/engine.py --data DIR     # DIR: train, val, test_2016_flickr .{en,fr,de,cs}.gz

Makes the benchmark model of a shape, saves it as a checkpoint, and lets each engine translate the
same sources. tokens/s counts the tokens of the best hypothesis and its `</s>`, no padding; loading
and warm-up on the same sources are left out. Each engine runs in a process of its own, one after
the other.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
# this folder comes last: transformers would take kernels.py in it for the package of that name
others = [path for path in sys.path if Path(path).resolve() != HERE]
sys.path[:] = [str(HERE.parent), *others, str(HERE)]
try:
    from bench_model import EOS, LANGUAGES, PAD, SHAPES, Corpus, config_of, padded, train
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install -e '.[bench]'")

SPLITS = ("train", "val", "test_2016_flickr")
MAX_TOKENS = 160
Tokens = dict[int, list[int]]
CT2_SETTINGS = [
    (1, "float16", 2048, 1),
    (1, "float16", 2048, 2),
    (2, "bfloat16", 1024, 1),
    (2, "float16", 2048, 2),
]
CT2_LARGE = [(1, "bfloat16", 1024, 1), (2, "bfloat16", 1024, 1), (2, "bfloat16", 512, 1)]
"""Greedy (1) or beams (2), type, batch, streams: what served it best."""


class Bench:
    """Sources in falling length, what they should give, and the table's rows."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.work = Path(arguments.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.model = self.work / f"model-{arguments.shape}"
        self.corpus = Corpus(Path(arguments.data), self.work, arguments.shape)
        self.target = self.corpus.languages["fr"]
        self.sources, self.references = self.corpus.test(arguments.sentences)
        self.order = sorted(range(len(self.sources)), key=lambda i: -len(self.sources[i]))
        self.arguments = arguments

    def every(self, step: int) -> list[int]:
        """Every step-th source, longest first."""
        return self.order[::step]

    def score(self, found: Tokens, index: list[int]) -> float:
        """BLEU of these sources' translations."""
        references = [self.references[i] for i in index]
        return round(self.corpus.bleu([found[i] for i in index], references), 2)

    def report(self, name: str, beam: int, run: Callable[[list[int]], Tokens], index: list[int]):
        """Warm up, time one run, add a row."""
        for _ in range(2 if "nllb" in name else 1):  # our graphs are captured as they are wanted
            run(index)
        gc.collect()  # so that Python does not look through all modules in the middle of a run
        gc.freeze()
        start = time.time()
        found = run(index)
        seconds = time.time() - start
        assert sorted(found) == sorted(index), "a row was lost"
        count = sum(len(tokens) + 1 for tokens in found.values())
        row = {
            "engine": name,
            "beam": beam,
            "sentences": len(index),
            "tokens_per_s": round(count / seconds),
            "sentences_per_s": round(len(index) / seconds, 1),
            "bleu": self.score(found, index),
            "gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if self.is_cuda else None,
        }
        print(json.dumps(row), flush=True)
        return found

    @property
    def is_cuda(self) -> bool:
        """Whether a GPU is used."""
        return self.arguments.device == "cuda"


def ours(bench: Bench) -> None:
    """Our engine, text left out: integers in, integers out."""
    from nllb_cli.engine.sizes import SlotPlan
    from nllb_cli.engine.slot_engine import SlotEngine
    from nllb_cli.model.weights import load_parameters
    from nllb_cli.options import DecodeOptions

    def engine(beam: int, dtype: torch.dtype):
        start = time.time()
        parameters = load_parameters(bench.model, torch.device(bench.arguments.device), dtype)
        print(f"loaded in {time.time() - start:.2f} s", flush=True)
        item = dtype.itemsize
        free = torch.cuda.mem_get_info()[0] if bench.is_cuda else 2**33
        plan = SlotPlan(parameters.config, beam, item, int(0.85 * free) - 2**31)
        return SlotEngine(parameters, DecodeOptions(beam), parameters.config.vocab_size, plan)

    half = {}
    for beam in bench.arguments.beams:
        runner = engine(beam, getattr(torch, bench.arguments.dtype))
        name = f"nllb {bench.arguments.dtype}"
        half[beam] = bench.report(
            name, beam, lambda index, r=runner: _ours(bench, r, index), bench.order
        )
        runner.close()
        gc.collect()
    if bench.arguments.exact:
        beam, index = bench.arguments.beams[0], bench.every(bench.arguments.exact)
        runner = engine(beam, torch.float32)
        exact = bench.report("nllb float32", beam, lambda i: _ours(bench, runner, i), index)
        differ = sum(exact[i] != half[beam][i] for i in index)
        bleu = bench.score(half[beam], index)
        print(f"half precision: BLEU {bleu} of these, {differ} of {len(index)} sentences differ")
        (bench.work / "exact.json").write_text(json.dumps(exact))


def _ours(bench: Bench, engine, index: list[int]) -> Tokens:
    from nllb_cli.records import Batch, Record, Segment

    record = Record(0, ("",), "", ("",))
    segments = [
        Segment(record, i, 0, 1, bench.sources[i], (bench.target,), MAX_TOKENS + 1) for i in index
    ]
    source = _Batches([Batch(segments[i : i + 128]) for i in range(0, len(segments), 128)])
    return {s.text_index: found[0].tokens for s, found in engine.translate(source)}


class _Batches:
    """Batches that are all there."""

    def __init__(self, batches: list) -> None:
        self._batches = batches[::-1]

    @property
    def is_exhausted(self) -> bool:
        return not self._batches

    def take(self, wait: bool):
        return self._batches.pop() if self._batches else None


def transformers(bench: Bench) -> None:
    """`generate`, sorted by length, bf16, sdpa, at the batch sizes that served it best."""
    from transformers import M2M100ForConditionalGeneration

    device = bench.arguments.device
    model = M2M100ForConditionalGeneration.from_pretrained(
        bench.model, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model = model.to(device).eval()

    def run(index: list[int], beam: int, size: int) -> Tokens:
        found = {}
        for first in range(0, len(index), size):
            part = index[first : first + size]
            tokens = padded([bench.sources[i] for i in part]).to(device)
            with torch.inference_mode():
                output = model.generate(
                    input_ids=tokens,
                    attention_mask=tokens.ne(PAD).long(),
                    num_beams=beam,
                    do_sample=False,
                    forced_bos_token_id=bench.target,
                    max_new_tokens=MAX_TOKENS + 1,
                    **({"early_stopping": False, "length_penalty": 1.0} if beam > 1 else {}),
                )
            for i, row in zip(part, output[:, 2:].tolist(), strict=True):
                found[i] = [t for t in (row[: row.index(EOS)] if EOS in row else row) if t != PAD]
        return found

    for beam in bench.arguments.beams:
        size = 1024 if beam == 1 else 256
        index = bench.order if beam == 1 else bench.every(8)
        found = bench.report(
            "transformers bfloat16", beam, lambda i, b=beam, s=size: run(i, b, s), index
        )
        exact = bench.work / "exact.json"
        if beam == bench.arguments.beams[0] and exact.exists():
            known = {int(i): tokens for i, tokens in json.loads(exact.read_text()).items()}
            shared = [i for i in index if i in known]
            differ = sum(found[i] != known[i] for i in shared)
            print(f"it differs from float32 in {differ} of {len(shared)} sentences", flush=True)


def ctranslate2(bench: Bench) -> None:
    """CTranslate2 at the settings that served it best; it sees dummy tokens only."""
    import ctranslate2 as ct2
    from ctranslate2.converters.transformers import M2M100Loader
    from transformers import M2M100ForConditionalGeneration

    dtype = torch.float16 if bench.is_cuda else torch.float32
    model = M2M100ForConditionalGeneration.from_pretrained(bench.model, dtype=dtype)
    spec = M2M100Loader().get_model_spec(model)
    names = [f"t{i}" for i in range(model.config.vocab_size)]
    names[:4] = ["<s>", "<pad>", "</s>", "<unk>"]
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "</s>"
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization="float16" if bench.is_cuda else None)
    folder = bench.work / f"ct2-{bench.arguments.shape}"
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
    del model, spec
    gc.collect()
    words = [[names[t] for t in source] for source in bench.sources]

    for beam in bench.arguments.beams:
        settings = CT2_SETTINGS if bench.arguments.shape in ("600m", "m2m-418m") else CT2_LARGE
        settings = [setting[1:] for setting in settings if setting[0] == min(beam, 2)]
        for kind, size, streams in settings if bench.is_cuda else [("float32", 32, 1)]:
            translator = ct2.Translator(
                str(folder), device=bench.arguments.device, compute_type=kind, inter_threads=streams
            )

            def run(index: list[int], t=translator, b=beam, s=size) -> Tokens:
                results = t.translate_batch(
                    [words[i] for i in index],
                    target_prefix=[[names[bench.target]]] * len(index),
                    beam_size=b,
                    max_batch_size=s,
                    max_decoding_length=MAX_TOKENS,
                    length_penalty=1.0,
                )
                return {
                    i: [int(t[1:]) for t in result.hypotheses[0][1:] if t[0] == "t"]
                    for i, result in zip(index, results, strict=True)
                }

            bench.report(f"ctranslate2 {kind} batch {size} x{streams}", beam, run, bench.order)
            del translator
            gc.collect()


ENGINES = {"nllb": ours, "transformers": transformers, "ctranslate2": ctranslate2}


def table(rows: list[dict]) -> str:
    """Rows as Markdown, with our rate over each alternative's."""
    best = {r["beam"]: r["tokens_per_s"] for r in reversed(rows) if "nllb" in r["engine"]}
    lines = [
        "| engine | beam | sentences | tokens/s | sentences/s | BLEU | nllb is faster by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = best.get(row["beam"], 0) / row["tokens_per_s"]
        lines.append(
            f"| {row['engine']} | {row['beam']} | {row['sentences']:,} | {row['tokens_per_s']:,} "
            f"| {row['sentences_per_s']:,} | {row['bleu']} | {ratio:.2f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    """Make the model if it is not there, run each engine in its own process, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="600m")
    parser.add_argument("--seconds", type=float, default=60, help="training time")
    parser.add_argument("--sentences", type=int, default=8192)
    parser.add_argument("--beams", type=lambda s: [int(b) for b in s.split(",")], default=[4, 1])
    parser.add_argument("--engines", default="nllb,transformers,ctranslate2")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--exact", type=int, default=0, help="fp32 on every N-th sentence")
    parser.add_argument("--work", default="/tmp/nllb-bench")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in (f"{split}.{code}.gz" for split in SPLITS for code in LANGUAGES):
        if not (Path(arguments.data) / name).is_file():
            sys.exit(f"{arguments.data}: no {name} in it, a caption a line as in Multi30k")
    bench = Bench(arguments)
    if arguments.only:
        ENGINES[arguments.only](bench)
        return
    if not (bench.model / "config.json").exists():
        config = config_of(arguments.shape)
        model = train(config, bench.corpus, arguments.seconds, arguments.device)
        model.to(torch.bfloat16).save_pretrained(bench.model)
        del model
        gc.collect()
        if bench.is_cuda:
            torch.cuda.empty_cache()
    rows = []
    for name in (n for n in arguments.engines.split(",") if n in ENGINES):
        command = [sys.executable, *sys.argv, "--only", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("{"):
                rows.append(json.loads(line))
        process.wait()
    device = torch.cuda.get_device_name() if bench.is_cuda else "CPU"
    print(f"\n{arguments.shape}, {device}, torch {torch.__version__}\n{table(rows)}")


if __name__ == "__main__":
    main()
