"""`--dry-run`: the plan of a run, checked as far as it can be, and an estimate from a sample."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from time import monotonic

import typer

from nllb_cli.commands.words import count, duration, plural
from nllb_cli.errors import InputError
from nllb_cli.jobs import JobRun
from nllb_cli.languages import name_of
from nllb_cli.options import DecodeOptions
from nllb_cli.pipeline import Translator
from nllb_cli.records import Record
from nllb_cli.stream import CHUNK_ROWS, MAX_PLACES, StreamOptions
from nllb_cli.text.open_rows import place
from nllb_cli.text.segments import Splitter

SAMPLE_ROWS = 2000
SAMPLE_S = 10.0
MAX_JOBS_SHOWN = 20


def dry_run(
    translator: Translator, job_run: JobRun, decode: DecodeOptions, options: StreamOptions
) -> None:
    """Print what a run would do and how long it would take; write nothing.

    Raises:
        InputError: the first row that would stop the run.
    """
    num_rows, num_kept = _print_jobs(job_run)
    with closing(job_run):
        _check_rows(translator, job_run.sample(), options)
    io = job_run.io
    _print("languages", f"{_named(io.source_lang)} to {', '.join(map(_named, io.target_langs))}")
    _print("model", f"{translator.fetch()}, {', '.join(translator.numbers.values())}")
    if num_kept and num_rows == num_kept:
        _print("estimate", "none: all rows are there already")
        return
    told = len(translator.notes)
    translator.load(decode)
    for note in translator.notes[told:]:
        _print("note", note)
    with closing(job_run):
        records = itertools.islice(job_run.sample(), SAMPLE_ROWS)
        _print_estimate(translator, records, decode, options, num_rows, num_kept)


def _print(word: str, text: str) -> None:
    typer.echo(f"{word:<10} {text}")


def _named(code: str) -> str:
    return f"{code} ({name_of(code)})" if code else "as each row says"


def _print_jobs(job_run: JobRun) -> tuple[int | None, int]:
    """Print inputs and outputs; return the number of rows, if it is known, and of those there."""
    total: int | None = 0
    total_kept = 0
    for number, (job, num_rows, num_kept) in enumerate(job_run.count()):
        if number < MAX_JOBS_SHOWN:
            rows = _rows(num_rows, num_kept)
            _print("input", f"{job.input}: {rows}, to {job.output or 'stdout'}")
        total_kept += num_kept
        total = None if total is None or num_rows is None else total + num_rows
    if number >= MAX_JOBS_SHOWN:
        _print("", f"and {count(number + 1 - MAX_JOBS_SHOWN)} more")
    if number:
        _print("in all", _rows(total, total_kept))
    return total, total_kept


def _rows(num_rows: int | None, num_kept: int) -> str:
    rows = "rows unknown" if num_rows is None else plural(num_rows, "row")
    return f"{rows}, {count(num_kept)} of them there already" if num_kept else rows


def _check_rows(translator: Translator, records: Iterator[Record], options: StreamOptions) -> None:
    """Tokenise all rows: refuse the first bad one, or print where they are, as a run would."""
    splitter, num_bad = Splitter(translator.tokenizer, options.rules), 0
    for chunk in _chunks(records):
        for row in splitter.split(chunk):
            if row.error is None:
                continue
            if options.on_error == "fail":
                raise InputError(f"{place(row.record)}: {row.error}")
            num_bad += 1
            if num_bad <= MAX_PLACES:
                _print("bad row", f"{place(row.record)}: {row.error}")
    if num_bad > MAX_PLACES:
        _print("", f"and {count(num_bad - MAX_PLACES)} more")


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield records in lists; those that stand before a bad row come before its error."""
    chunk: list[Record] = []
    try:
        for record in records:
            chunk.append(record)
            if len(chunk) == CHUNK_ROWS:
                yield chunk
                chunk = []
    except InputError:
        yield chunk
        raise
    yield chunk


def _print_estimate(
    translator: Translator,
    records: Iterator[Record],
    decode: DecodeOptions,
    options: StreamOptions,
    num_rows: int | None,
    num_kept: int,
) -> None:
    stream, chunks = translator.stream(records, decode, replace(options, on_error="keep"))
    start = monotonic()
    for _ in chunks:
        if monotonic() - start > SAMPLE_S:
            stream.request_stop(0)
    seconds, stats = max(monotonic() - start, 1e-3), stream.stats
    if not stats.source_tokens:
        _print("estimate", "none: there is nothing to translate in the first rows")
        return
    _print("sample", f"{count(stats.source_tokens)} tokens in {duration(seconds)}")
    num_left = None if num_rows is None else num_rows - num_kept
    expected = None if num_left is None else stats.expected_tokens(num_left)
    if num_left is not None and expected is not None:
        scale = expected / stats.source_tokens
        tokens = f"{count(expected)} tokens in, {count(stats.target_tokens * scale)} out"
        left = f", for the {plural(num_left, 'row')} left" if num_kept else ""
        _print("estimate", f"{tokens}; {duration(seconds * scale)} at the sample's speed{left}")
