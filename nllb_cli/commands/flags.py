"""The options of the commands, each named once."""

from collections.abc import Callable
from typing import Annotated

import typer

from nllb_cli.errors import UsageError
from nllb_cli.options import DTYPES, ON_ERROR

_ROWS = "Rows and columns"
_MODEL = "Model and device"
_SEARCH = "Search"
_TEXT = "Text"
_RUN = "Long runs"
_SHOW = "What is shown"


def _among(*choices: str) -> Callable[[str], list[str]]:
    """What the shell completes an option's value to."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def whole(flag: str, at_least: int | None = None) -> Callable[[str], int]:
    """What reads an option's whole number; the library's own refusal names no remedy."""
    wanted = "a whole number" if at_least is None else f"{at_least} or more"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise UsageError(f"{flag} {text}: choose {wanted}") from None
        if at_least is not None and number < at_least:
            raise UsageError(f"{flag} {text}: choose {wanted}")
        return number

    return parse


def _decimal(flag: str) -> Callable[[str], float]:
    """What reads an option's number."""

    def parse(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{flag} {text}: choose a number") from None

    return parse


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT", help="Files, directories or globs; - is stdin.", show_default=False
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write; without it, stdout."),
]
OutputDir = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Where to write, a file an input, under the inputs' names."),
]
SourceLang = Annotated[
    str,
    typer.Option("--src", metavar="LANG", help="Language of the text: code, tag or English name."),
]
TargetLangs = Annotated[
    str,
    typer.Option("--tgt", metavar="LANG", help="Language to translate into; several with commas."),
]

Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="lines, jsonl, parquet, csv or tsv; without it, by the suffix, else lines.",
        autocompletion=_among("lines", "jsonl", "parquet", "csv", "tsv"),
        rich_help_panel=_ROWS,
    ),
]
Field = Annotated[
    str,
    typer.Option(
        "--field",
        "--column",
        metavar="NAME",
        help="Field or column to translate; several with commas.",
        rich_help_panel=_ROWS,
    ),
]
OutputField = Annotated[
    str | None,
    typer.Option(
        "--output-field",
        "--output-column",
        metavar="NAME",
        help="Field or column for the translation, {field} and {tgt} in it filled in "
        "({field} alone: in the text's place); "
        "without it, translation.",
        rich_help_panel=_ROWS,
    ),
]
SourceField = Annotated[
    str | None,
    typer.Option(
        "--src-field",
        metavar="NAME",
        help="Field or column with each row's own language; --src where it is empty.",
        rich_help_panel=_ROWS,
    ),
]
TargetField = Annotated[
    str | None,
    typer.Option(
        "--tgt-field",
        metavar="NAME",
        help="Field or column with each row's own target; --tgt where it is empty.",
        rich_help_panel=_ROWS,
    ),
]
Status = Annotated[
    bool,
    typer.Option(
        "--status",
        help="Add a field or column `status`: ok, or what a row is beside that, such as blank "
        "(for lines, a file OUTPUT.status).",
        rich_help_panel=_ROWS,
    ),
]
StatusField = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="--status under another name.", rich_help_panel=_ROWS),
]
OnError = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="At a bad row: fail, or keep (an empty translation, an error text, exit code 1).",
        autocompletion=_among(*ON_ERROR),
        rich_help_panel=_ROWS,
    ),
]
Skip = Annotated[
    int,
    typer.Option(
        parser=whole("--skip", 0),
        metavar="N",
        help="Leave out the first N rows of each input.",
        rich_help_panel=_ROWS,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        parser=whole("--limit", 0),
        metavar="N",
        help="Translate at most N rows of each input.",
        rich_help_panel=_ROWS,
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Translate the I-th of N equal slices of each input; `nllb merge` joins them.",
        rich_help_panel=_ROWS,
    ),
]

Model = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|ID",
        help="Checkpoint directory or hub id; without it, $NLLB_MODEL, else the bundled model.",
        rich_help_panel=_MODEL,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Branch, tag or commit of a hub model.", rich_help_panel=_MODEL
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "--devices",
        metavar="NAME",
        help="auto, cpu, cuda or cuda:N; several with commas, or all, share the rows; "
        "auto is the first GPU, else the CPU.",
        autocompletion=_among("auto", "cpu", "cuda", "all"),
        rich_help_panel=_MODEL,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, float32, bfloat16 or float16; auto is bfloat16 on a GPU, float32 on a CPU.",
        autocompletion=_among(*DTYPES),
        rich_help_panel=_MODEL,
    ),
]
GpuMemory = Annotated[
    float,
    typer.Option(
        parser=_decimal("--gpu-memory"),
        metavar="SHARE",
        help="Share of the free GPU memory to use.",
        rich_help_panel=_MODEL,
    ),
]
MaxBatchRows = Annotated[
    int | None,
    typer.Option(
        parser=whole("--max-batch-rows", 1),
        metavar="N",
        help="Decode at most N rows together; without it, what memory allows.",
        rich_help_panel=_MODEL,
    ),
]

Beam = Annotated[
    int,
    typer.Option(
        parser=whole("--beam"),
        metavar="N",
        help="Beams a row; 1 is greedy.",
        rich_help_panel=_SEARCH,
    ),
]
LengthPenalty = Annotated[
    float,
    typer.Option(
        parser=_decimal("--length-penalty"),
        metavar="A",
        help="Score is log-probability / length^A.",
        rich_help_panel=_SEARCH,
    ),
]
EarlyStopping = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="false, true or never, as in transformers.",
        autocompletion=_among("false", "true", "never"),
        rich_help_panel=_SEARCH,
    ),
]
MaxSourceTokens = Annotated[
    int | None,
    typer.Option(
        parser=whole("--max-source-tokens", 1),
        metavar="N",
        help="Longest source; without it, what the model has positions for.",
        rich_help_panel=_SEARCH,
    ),
]
MaxTargetTokens = Annotated[
    int | None,
    typer.Option(
        parser=whole("--max-target-tokens", 2),
        metavar="N",
        help="Longest translation; without it, twice the row's source tokens + 50, at most 512.",
        rich_help_panel=_SEARCH,
    ),
]
TooLong = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="A longer source: error (it is a bad row), or cut (its beginning is translated).",
        autocompletion=_among("error", "cut"),
        rich_help_panel=_SEARCH,
    ),
]

Normalize = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="Make plain what the vocabulary lacks, such as curly quotes (auto), all punctuation "
        "(plain), or what it lacks of composed letters (nfc); off: nothing.",
        autocompletion=_among("auto", "plain", "nfc", "off"),
        rich_help_panel=_TEXT,
    ),
]
Emoji = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="keep: emoji stay where they are; model: it gets them as text.",
        autocompletion=_among("keep", "model"),
        rich_help_panel=_TEXT,
    ),
]

Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace an existing output.", rich_help_panel=_RUN),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue where an interrupted run stopped.", rich_help_panel=_RUN
    ),
]
RecordFile = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Write what was run and what came out, as JSON.",
        rich_help_panel=_RUN,
    ),
]
LogJson = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Append events, one JSON object a line: start, progress, bad row, end.",
        rich_help_panel=_RUN,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Check everything, print the plan, translate nothing.",
        rich_help_panel=_RUN,
    ),
]  # fmt: skip
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Errors only on stderr.", rich_help_panel=_SHOW),
]
