"""chrF of the bundled model through `nllb translate`, beside the figures of its authors.

    python benchmarks/chrf.py DATA [--beam 4]

DATA is a folder of eng_Latn-LANG.dev.tsv.gz files (two columns), of which the first 500 lines are
translated in both directions. Ends with 1 if a direction is more than 1.0 below its figure.
"""

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from sacrebleu.metrics import CHRF

NUM_LINES = 500
TOLERANCE = 1.0
# (from English, into English), by transformers in bfloat16 at beam 4 on the same lines
FIGURES = {
    "fra_Latn": (66.3, 73.1),
    "deu_Latn": (63.2, 68.4),
    "spa_Latn": (68.6, 74.5),
    "nld_Latn": (68.1, 75.6),
    "jpn_Jpan": (37.0, 55.9),
}


def translate(lines: list[str], source: str, target: str, beam: int) -> list[str]:
    """Return what the command makes of a file with these lines."""
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "in.txt"), Path(folder, "out.txt")
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [sys.executable, "-m", "nllb_cli", "translate", path, "-o", output, "--quiet"]
        command += ["--src", source, "--tgt", target, "--beam", str(beam), "--device", "cpu"]
        subprocess.run(command, check=True)
        return output.read_text(encoding="utf-8").split("\n")[:-1]


def main() -> int:
    """Print a row a direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    lowest = 0.0
    print("| from | to | chrF | figure | difference |\n|---|---|---|---|---|")
    for language, figures in FIGURES.items():
        with gzip.open(
            options.data / f"eng_Latn-{language}.dev.tsv.gz", "rt", encoding="utf-8"
        ) as file:
            pairs = [line.rstrip("\n").split("\t") for line in file][:NUM_LINES]
        for column, figure in enumerate(figures):
            source, target = (("eng_Latn", language), (language, "eng_Latn"))[column]
            found = translate([pair[column] for pair in pairs], source, target, options.beam)
            if len(found) != len(pairs):
                raise SystemExit(f"{source} to {target}: {len(found)} lines, not {len(pairs)}")
            score = CHRF().corpus_score(found, [[pair[1 - column] for pair in pairs]]).score
            lowest = min(lowest, score - figure)
            print(f"| {source} | {target} | {score:.1f} | {figure} | {score - figure:+.1f} |")
    return int(lowest < -TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
