"""`nllb merge`: the shards of an output put together."""

from typing import Annotated

import typer

from nllb_cli.commands import flags

Shards = Annotated[
    list[str],
    typer.Argument(
        metavar="SHARD",
        help="Outputs of --shard 1/N to N/N, in order; a quoted glob is put in order.",
        show_default=False,
    ),
]
Target = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where to write all rows.")
]

AsGiven = Annotated[
    bool, typer.Option("--as-given", help="Join them whatever the numbers in their names say.")
]


def merge(
    shards: Shards,
    output: Target,
    as_given: AsGiven = False,
    format: flags.Format = None,
    overwrite: flags.Overwrite = False,
    quiet: flags.Quiet = False,
) -> None:
    """Put the outputs of an array job together, in the order given."""
    from nllb_cli.commands.words import plural
    from nllb_cli.jobs import merge_shards

    merged = merge_shards(shards, output, format, overwrite, as_given)
    if not quiet:
        if merged.lacking:
            typer.echo(f"nllb: {merged.lacking}: no such file, statuses are left out", err=True)
        if merged.removed:
            typer.echo(f"nllb: {merged.removed}: removed, it was of the rows before", err=True)
        rows = f"{plural(merged.num_rows, 'row')} of {plural(merged.num_shards, 'shard')}"
        typer.echo(f"nllb: {rows} in {output}", err=True)
