"""`nllb translate`: check everything, then read, translate and write."""

from contextlib import closing
from typing import cast

import typer

from nllb_cli.commands import flags
from nllb_cli.errors import ExitCode, UsageError
from nllb_cli.options import DecodeOptions, EarlyStopping, IoOptions, OnError


def translate(
    inputs: flags.Inputs,
    src: flags.SourceLang = "",
    tgt: flags.TargetLangs = "",
    output: flags.Output = None,
    format: flags.Format = None,
    field: flags.Field = "text",
    output_field: flags.OutputField = None,
    on_error: flags.OnError = "fail",
    model: flags.Model = None,
    revision: flags.Revision = None,
    device: flags.Device = "auto",
    dtype: flags.Dtype = "auto",
    beam: flags.Beam = 4,
    length_penalty: flags.LengthPenalty = 1.0,
    early_stopping: flags.EarlyStopping = "false",
    quiet: flags.Quiet = False,
) -> None:
    """Translate files, one row out for each row in, in the same order.

    Lines, JSONL and Parquet go through; other fields and columns stay as they are.
    """
    decode = DecodeOptions(beam, length_penalty, cast(EarlyStopping, early_stopping))
    from nllb_cli.jobs import Job, JobOptions, JobRun
    from nllb_cli.pipeline import Translator
    from nllb_cli.stream import StreamOptions

    translator = Translator(model, device, dtype, revision=revision)
    for note in [] if quiet else translator.notes:
        typer.echo(f"nllb: {note}", err=True)
    if not src or not tgt:
        raise UsageError("--src and --tgt are needed: the languages of the text and of the output")
    codes = []
    for name in [src, *tgt.split(",")]:
        found = translator.language(name)
        codes.append(found.code)
        if not found.is_literal and not quiet:
            typer.echo(f"nllb: language {name!r} is {found.code}", err=True)
    io = IoOptions(
        codes[0],
        tuple(codes[1:]),
        fields=tuple(field.split(",")),
        output_field=output_field,
        on_error=cast(OnError, on_error),
    )
    run = JobRun([Job(name, output) for name in inputs], JobOptions(io, format))
    with closing(run):
        try:
            stream, chunks = translator.stream(
                run.records(), decode, StreamOptions(on_error=io.on_error)
            )
            for chunk in chunks:
                run.write(chunk)
        except BrokenPipeError:
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
    if not quiet:
        stats = stream.stats
        typer.echo(f"nllb: {stats.rows:,} rows in {stats.elapsed_s:.1f} s", err=True)
