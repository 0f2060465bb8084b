"""Make the benchmark model's directory whole, so that text goes in and comes out of it.

    python benchmarks/bench_text.py --data DIR --model MODEL --work WORK [--lines 20000]

MODEL is what benchmarks/engine.py made (WORK/model-SHAPE). It gets the tokeniser of the captions,
with NLLB's ids for its languages, and WORK/text.en gets so many different lines of one to three
captions: what benchmarks/translate.py and `nllb translate` want.
"""

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
from bench_model import LANGUAGES, Corpus, read_lines

CODES = {"en": "eng_Latn", "fr": "fra_Latn", "de": "deu_Latn", "cs": "ces_Latn"}


def add_tokenizer(model: Path, work: Path) -> None:
    """Write the captions' pieces and the languages' ids into a checkpoint."""
    shutil.copy(work / "captions.model", model / "sentencepiece.bpe.model")
    added = {CODES[code]: token_id for code, token_id in LANGUAGES.items()}
    (model / "added_tokens.json").write_text(json.dumps(added))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))


def different_lines(captions: list[str], count: int) -> list[str]:
    """Return lines of one to three captions, no two the same."""
    rng = random.Random(2)
    lines: dict[str, None] = {}
    while len(lines) < count:
        picks = [rng.choice(captions).strip() for _ in range(rng.choice([1, 2, 3]))]
        lines[" ".join(picks)] = None
    return list(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/nllb-bench"))
    parser.add_argument("--lines", type=int, default=20_000)
    arguments = parser.parse_args()
    Corpus(arguments.data, arguments.work)  # trains the pieces, if they are not there
    add_tokenizer(arguments.model, arguments.work)
    lines = different_lines(read_lines(arguments.data, "train", "en"), arguments.lines)
    path = arguments.work / "text.en"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path}: {len(lines):,} lines; {arguments.model} has a tokeniser")


if __name__ == "__main__":
    main()
