"""What a run that a bad row ends says of the rows before it."""

from nllb_cli.commands.words import plural
from nllb_cli.errors import BadRowError
from nllb_cli.text.segments import CUT_REMEDY


def kept(error: BadRowError, num_rows: int, num_outputs: int) -> str:
    """Say how a run goes on behind so many rows, or that it cannot; to be put behind the error.

    Mending the row is no way: the input is another then, and all of it is translated again.
    """
    is_table = error.format not in ("lines", "jsonl")
    ways = ["--too-long cut"] * (CUT_REMEDY in str(error))
    if not is_table:  # a table's rows have a column for errors, which those that are there lack
        ways.append("--on-error keep")
    rows = plural(num_rows, "row")
    if ways:
        way = "either" if len(ways) > 1 else ways[0]
        return f"; {rows} {'is' if num_rows == 1 else 'are'} kept, --resume goes on with {way}"
    if num_outputs > 1:  # those that are complete need not be made again
        return ""
    return f"; --overwrite is needed then, which translates the {rows} before it again"
