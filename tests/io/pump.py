"""Rows through a format and back, with a translation that can be told from its source."""

from contextlib import closing

from hypothesis import HealthCheck, settings

from nllb_cli.io.formats import open_sink, open_source
from nllb_cli.options import IoOptions
from nllb_cli.records import Translation

PROPERTY = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""For property tests: the same on each run, and patient with a busy machine."""
OPTIONS = IoOptions("eng_Latn", ("fra_Latn",))


def translate(record, change=str.upper):
    """Return a translation of a record: its texts changed, once for each target."""
    texts = tuple(None if t is None else change(t) for t in record.texts)
    targets = record.target_langs or ("",)
    status = "ok" if record.error is None else "failed"
    scores = ((None,) * len(texts),) * len(targets)
    return Translation(record, (texts,) * len(targets), scores, status, record.error)


def pump(source, target, options=OPTIONS, stop_after=None, change=str.upper, **how):
    """Copy a source to a sink; stop as a crash would after some rows. Return the rows done."""
    first, stop = how.get("first_row", 0), how.pop("stop", None)
    with closing(open_source(str(source), options)) as rows:
        sink = open_sink(str(target), rows, options, **how)
        if sink.is_finished:
            return 0
        done = 0
        with closing(sink):
            for record in rows.records(first + sink.num_rows, stop):
                if done == stop_after:
                    return done
                sink.write_all([translate(record, change)])
                done += 1
            sink.finish()
    return done


def round_trip(folder, content, suffix, options=OPTIONS, change=str.upper):
    """Write bytes into a file, pump it, and return the bytes of the output."""
    source, target = folder / f"in{suffix}", folder / f"out{suffix}"
    source.write_bytes(content)
    pump(source, target, options, mode="overwrite", change=change)
    return target.read_bytes()


def read_all(folder, content, suffix, options=OPTIONS):
    """Write bytes into a file and return its records."""
    source = folder / f"in{suffix}"
    source.write_bytes(content)
    with closing(open_source(str(source), options)) as rows:
        return list(rows.records())
