"""Plain text, one row a line: a line in, a line out.

A row ends with LF or CRLF, and its translation ends the same way; a last line without LF stays so.
A translation never adds a line: an LF inside it becomes a space.
"""

from collections.abc import Callable, Iterator

from nllb_cli.io.rows import Block
from nllb_cli.options import IoOptions
from nllb_cli.records import Record, Translation

STATUS_SUFFIX = ".status"
"""Of the file beside an output that has its rows' statuses."""


def read(blocks: Iterator[Block], options: IoOptions) -> Iterator[Record]:
    """Yield one record a line; its origin is the line's end."""
    source, targets = options.source_lang, options.target_langs
    for block in blocks:
        if block.is_plain:
            for index, row in enumerate(block.rows, block.first):
                yield Record(index, (row,), source, targets, "\n")
            continue
        last = block.first + len(block.rows) - 1 if block.is_open else -1
        for index, row in enumerate(block.rows, block.first):
            if index == last:
                record = Record(index, (row,), source, targets, "")
            elif row.endswith("\r"):
                record = Record(index, (row[:-1],), source, targets, "\r\n")
            else:
                record = Record(index, (row,), source, targets, "\n")
            if block.errors and index in block.errors:
                record.texts, record.error = (None,), block.errors[index]
            yield record


def write(target_index: int) -> Callable[[Translation], str]:
    """Return the function that makes the line of one target."""

    def line(translation: Translation) -> str:
        text = translation.texts[target_index][0] or ""
        if "\n" in text:
            text = text.replace("\n", " ")
        end: str = translation.record.origin
        return text + end

    return line


def write_status(translation: Translation) -> str:
    """Return the row of the side file: the status, and after a tab what went wrong."""
    if translation.error is None:
        return translation.status + "\n"
    return f"{translation.status}\t{' '.join(translation.error.split())}\n"
