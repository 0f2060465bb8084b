"""`nllb bench`: what this machine does with a model."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nllb_cli.commands import flags
from nllb_cli.options import DecodeOptions

if TYPE_CHECKING:
    from nllb_cli.bench import Report

Target = Annotated[
    str | None,
    typer.Option(
        "--tgt",
        metavar="LANG",
        help="Language to translate into; without it, French, if it is known.",
    ),
]
Lines = Annotated[
    int | None,
    typer.Option(
        parser=flags.whole("--lines", 1),
        metavar="N",
        help="Lines to translate; without it, as many as take some seconds.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]


def bench(
    tgt: Target = None,
    lines: Lines = None,
    model: flags.Model = None,
    revision: flags.Revision = None,
    device: flags.Device = "auto",
    dtype: flags.Dtype = "auto",
    gpu_memory: flags.GpuMemory = 0.9,
    max_batch_rows: flags.MaxBatchRows = None,
    beam: flags.Beam = 4,
    as_json: Json = False,
) -> None:
    """Measure what this machine does with a model, on everyday English sentences.

    Start-up, rows and tokens a second, memory, and where the time goes.
    """
    decode = DecodeOptions(beam)
    from nllb_cli.bench import measure
    from nllb_cli.pipeline import Translator

    translator = Translator(
        model, device, dtype, revision=revision, gpu_memory=gpu_memory,
        max_batch_rows=max_batch_rows,
    )  # fmt: skip
    report = measure(translator, decode, tgt, lines)
    for note in translator.notes:
        typer.echo(f"nllb: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(asdict(report), ensure_ascii=False))
    else:
        _print_table(report)


def _print_table(report: "Report") -> None:
    rows = _rows(report)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


def _rows(report: "Report") -> list[tuple[str, str]]:
    """Return the lines of the table: a name, a figure."""
    return [
        ("model", report.model),
        ("device", f"{report.device}, {report.dtype}"),
        ("search", f"{report.source_lang} to {report.target_lang}, beam {report.beam}"),
        ("load", f"{report.load_s:.2f} s"),
        ("first line", f"{report.first_line_s:.2f} s after that; {report.one_line_s:.3f} s later"),
        (
            f"{report.lines:,} lines",
            f"{report.lines_s:.2f} s, the first after {report.lines_first_s:.2f} s",
        ),
        ("rate", f"{report.rows_per_s:,.1f} rows/s, {report.tokens_per_s:,.0f} tokens/s"),
        ("slots", f"{report.slots:,} rows at once"),
        ("memory", f"{report.memory_bytes / 2**30:.2f} GiB at most"),
        (
            "time",
            f"encode {report.encode_share:.0%}, decode {report.decode_share:.0%}, "
            f"rest {report.rest_share:.0%}",
        ),
    ]
