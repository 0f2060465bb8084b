import gc
import random
import threading
import time
import tracemalloc

import pytest

from nllb_cli.errors import DeviceError, InputError
from nllb_cli.records import Hypothesis, Record
from nllb_cli.stream import READ_AHEAD_ROWS, Stream, StreamOptions
from nllb_cli.text.buckets import Limits
from nllb_cli.text.segments import SplitRules
from tests.conftest import ByteTokenizer, FakeEngine

FRENCH = ("fra_Latn",)
SMALL = Limits(window_rows=16, max_batch_rows=5)


def records(texts, targets=FRENCH):
    for index, text in enumerate(texts):
        yield Record(index, (text,), "eng_Latn", targets)


def stream(engine=None, **options):
    options.setdefault("limits", SMALL)
    return Stream(engine or FakeEngine(), ByteTokenizer(), StreamOptions(**options))


def run(texts, engine=None, **options):
    return [t for chunk in stream(engine, **options).run(records(texts)) for t in chunk]


def collect(chunks, found):
    for chunk in chunks:
        found += chunk


def texts_with_blanks(count):
    return ["" if n % 4 == 1 else f"{n} " + "x" * (n * 37 % 91) for n in range(count)]


class OneByOne(FakeEngine):
    """Waits for a sign before it gives a certain text back."""

    def __init__(self, slow_text):
        super().__init__()
        self.slow_text, self.go_on, self.given = slow_text, threading.Event(), 0

    def translate(self, source):
        slow = []
        while not source.is_exhausted:
            batch = source.take(wait=not slow)
            if batch is None:
                time.sleep(0.001)
            for segment in batch.segments if batch else []:
                if bytes(t - 4 for t in segment.source_tokens[1:-1]).decode() == self.slow_text:
                    slow.append(segment)
                    continue
                self.given += 1
                yield segment, (Hypothesis(segment.source_tokens[1:-1], -1.0, "eos"),)
            if slow and self.go_on.is_set():
                yield slow.pop(), (Hypothesis([69], -1.0, "eos"),)
        for segment in slow:
            self.go_on.wait()
            yield segment, (Hypothesis([69], -1.0, "eos"),)


@pytest.mark.parametrize("pause_s", [None, 0.02])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 2000])
def test_one_output_for_each_input_in_order(count, pause_s):
    texts = texts_with_blanks(count)
    found = run(texts, pause_s=pause_s)
    assert [t.text for t in found] == texts
    assert [t.record.index for t in found] == list(range(count))


@pytest.mark.parametrize("window_rows", [7, 64, 512, 1024])
@pytest.mark.parametrize("batch_rows", [1, 5, 256])
def test_row_n_is_of_row_n_whatever_windows_and_batches_are(window_rows, batch_rows):
    chance = random.Random(window_rows)
    texts = [
        chance.choice(["", " ", "\t"]) if chance.random() < 0.24 else f"{n} " + "x" * (n % 50)
        for n in range(2 * window_rows + 7)
    ]
    limits = Limits(window_rows, max_batch_rows=batch_rows)
    assert [t.text for t in run(texts, limits=limits)] == texts


def test_ten_thousand_rows_of_any_length_stay_in_order():
    chance = random.Random(7)
    texts = [f"{n} " + "x" * int(chance.expovariate(0.02)) for n in range(10_000)]
    assert [t.text for t in run(texts, limits=Limits())] == texts


@pytest.mark.parametrize("on_error", ["fail", "keep"])
def test_row_581_of_3000_is_too_long(on_error):
    texts = [f"{n}" for n in range(3000)]
    texts[580] = "x" * 900
    flow = stream(rules=SplitRules(max_source_tokens=500), on_error=on_error, limits=Limits(256))
    found = []
    if on_error == "fail":
        with pytest.raises(InputError, match=r"row 581: the source has 900 tokens .* is 500"):
            collect(flow.run(records(texts)), found)
        assert [t.text for t in found] == texts[:580]
        return
    collect(flow.run(records(texts)), found)
    assert [t.text for t in found] == [*texts[:580], "", *texts[581:]]
    assert (found[580].status, flow.stats.marks["failed"]) == ("failed", 1)
    assert flow.stats.places == {"failed": ["row 581"]}


def test_a_blank_input_never_touches_the_engine():
    engine = FakeEngine()
    assert [t.text for t in run(["", " ", None, "\t"] * 500, engine)] == ["", " ", None, "\t"] * 500
    assert engine.batches == []


def test_repeated_rows_go_to_the_engine_once():
    engine = FakeEngine()
    found = run(["same", "other"] * 8, engine)
    assert sum(engine.batches) == 2
    assert [t.text for t in found] == ["same", "other"] * 8
    assert [t.status for t in found] == ["ok"] * 2 + ["repeated"] * 14


def test_windows_of_a_file_are_full_and_the_same_each_time():
    seen = []

    class Watch(FakeEngine):
        def translate(self, source):
            while batch := source.take(True):
                seen.append([segment.record.index for segment in batch.segments])
                yield from ((s, (Hypothesis([69], 0, "eos"),)) for s in batch.segments)

    def slowly():
        for record in records(texts_with_blanks(100)):
            time.sleep(0.0005 * (record.index % 3))
            yield record

    for source in (slowly(), records(texts_with_blanks(100))):
        list(stream(Watch(), pause_s=None).run(source))
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert {index // 16 for index in seen[0]} == {0}


def test_first_results_come_before_the_end_and_a_pause_holds_nothing_back():
    arrived, go_on = threading.Event(), threading.Event()

    def source():
        yield from records(["a", "", "b"])
        assert go_on.wait(10), "the rows before the pause were held back"
        yield Record(3, ("c",), "eng_Latn", FRENCH)

    found = []
    start = time.monotonic()
    for chunk in stream(pause_s=0.05).run(source()):
        found += chunk
        if len(found) == 3 and not arrived.is_set():
            arrived.set()
            pause_s = time.monotonic() - start
            go_on.set()
    assert [t.text for t in found] == ["a", "", "b", "c"]
    assert pause_s < 3


@pytest.mark.parametrize("pause_s", [None, 0.02])
def test_one_slow_row_stalls_the_reader_and_memory_stays_bounded(pause_s):
    engine = OneByOne("slow")
    read = []

    def source():
        for record in records(["slow"] + texts_with_blanks(50_000)):
            read.append(record.index)
            yield record

    found = []
    flow = stream(engine, pause_s=pause_s)
    ticks = 0
    for chunk in flow.run(source()):
        found += chunk
        if not engine.go_on.is_set():
            assert not found, "rows behind the slow one came first"
            ticks += 1
            if ticks == 5:  # time enough for all rows, were there no bound
                assert len(flow._order) <= SMALL.max_open_rows
                assert len(read) <= SMALL.max_open_rows + READ_AHEAD_ROWS + 1
                engine.go_on.set()
    assert len(found) == 50_001
    assert [t.record.index for t in found] == list(range(50_001))


def test_a_slow_consumer_slows_the_reader():
    read = []

    def source():
        for record in records(texts_with_blanks(50_000)):
            read.append(record.index)
            yield record

    chunks = stream().run(source())
    found = next(chunks)
    time.sleep(0.3)
    assert len(read) <= len(found) + 2 * SMALL.max_open_rows + READ_AHEAD_ROWS + 1
    chunks.close()


def test_long_rows_bound_the_window_by_their_characters():
    engine = OneByOne("slow")
    limits = Limits(window_rows=1000, window_chars=10_000, max_batch_rows=5)
    flow = stream(engine, limits=limits, pause_s=None)
    texts = ["slow"] + [f"{n:04}" + "x" * 900 for n in range(5000)]
    for number, _ in enumerate(flow.run(records(texts))):
        if number == 5:
            chars = flow._opened_chars - flow._closed_chars
            # one chunk of 512 rows comes in before its weight is known
            assert chars <= limits.max_open_chars + limits.window_chars + 512 * 904
            engine.go_on.set()


def test_memory_is_flat():
    gc.collect()
    tracemalloc.start()
    peaks = []
    flow = stream(limits=Limits(window_rows=256))
    for chunk in flow.run(records(str(n) for n in range(20_000))):
        if chunk and chunk[-1].record.index // 4000 > len(peaks):
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.reset_peak()
    tracemalloc.stop()
    assert max(peaks[1:]) < 1.5 * peaks[0] + 500_000


def test_an_error_of_the_reader_comes_after_the_rows_before_it():
    def source():
        yield from records(["a", "b", ""])
        raise InputError("data.txt:4: broken")

    found = []
    with pytest.raises(InputError, match="data.txt:4: broken"):
        collect(stream(pause_s=None).run(source()), found)
    assert [t.text for t in found] == ["a", "b", ""]


def test_a_bad_row_stops_after_the_rows_before_it():
    texts = ["a", "b", "far too long", "c"] + ["d"] * 5000
    found = []
    with pytest.raises(InputError, match="row 3: the source has 12 tokens and the limit is 6"):
        collect(stream(rules=SplitRules(max_source_tokens=6)).run(records(texts)), found)
    assert [t.text for t in found] == ["a", "b"]


def test_a_bad_row_is_kept_in_its_place():
    texts = ["a", "b", "far too long", "c"]
    found = run(texts, rules=SplitRules(max_source_tokens=6), on_error="keep")
    assert [t.text for t in found] == ["a", "b", "", "c"]
    assert [t.status for t in found] == ["ok", "ok", "failed", "ok"]


class Choking(FakeEngine):
    """Fails on a text; after a number of failures it is broken for good."""

    def __init__(self, bad, max_failures=1_000):
        super().__init__()
        self.bad, self.failures, self.max_failures = bad, 0, max_failures

    def translate(self, source):
        for segment, hypotheses in super().translate(source):
            text = bytes(t - 4 for t in segment.source_tokens[1:-1]).decode()
            if text == self.bad or self.failures >= self.max_failures:
                self.failures += 1
                raise RuntimeError("index out\nof range")
            yield segment, hypotheses


def test_the_row_on_which_the_engine_fails_is_found_and_marked():
    texts = [f"{n}" for n in range(100)] + ["57"]
    engine = Choking("57")
    found = run(texts, engine, on_error="keep", limits=Limits(max_batch_rows=20))
    assert [t.text for t in found] == [text if text != "57" else "" for text in texts]
    assert {t.error for t in found if t.status == "failed"} == {
        "the engine failed on this row: RuntimeError: index out of range"
    }
    assert engine.failures == 2


def test_the_row_on_which_the_engine_fails_is_named():
    with pytest.raises(InputError, match="row 58: the engine failed on this row: RuntimeError"):
        run([f"{n}" for n in range(100)], Choking("57"))


def test_a_broken_engine_is_not_the_rows_fault():
    with pytest.raises(DeviceError, match=r"row \d+ to row \d+: the engine failed: RuntimeError"):
        run([f"{n}" for n in range(100)], Choking("50", max_failures=1), on_error="keep")


def test_an_error_that_a_person_can_mend_is_not_retried():
    class Full(FakeEngine):
        def translate(self, source):
            source.take(True)
            raise DeviceError("no memory")
            yield

    with pytest.raises(DeviceError, match="^no memory$"):
        run(["a"], Full(), on_error="keep")


def test_stop_gives_out_what_is_in_hand_and_ends():
    engine = OneByOne("slow")
    flow = stream(engine, pause_s=0.02)
    found = []
    texts = [f"{n}" for n in range(40)] + ["slow"] + ["x"] * 100_000
    for chunk in flow.run(records(texts)):
        found += chunk
        if len(found) >= 30:
            flow.request_stop(grace_s=5)
            engine.go_on.set()
    assert [t.record.index for t in found] == list(range(len(found)))
    assert 40 <= len(found) < 10_000
    assert flow.has_ended


def test_stop_does_not_wait_for_ever():
    flow = stream(OneByOne("slow"), pause_s=0.02)
    for ticks, _ in enumerate(flow.run(records(["slow"] + ["x"] * 1000))):
        if ticks == 3:
            start = time.monotonic()
            flow.request_stop(grace_s=0.3)
    assert 0.2 < time.monotonic() - start < 3
    assert not flow.has_ended
    flow._engine.go_on.set()


def test_leaving_the_loop_ends_the_threads():
    flow = stream()
    for chunk in flow.run(records(f"{n}" for n in range(100_000))):
        if chunk:
            break
    else:
        pytest.fail("nothing came")
    gc.collect()
    flow.close()
    assert flow.has_ended


def test_a_row_that_was_cut_to_what_another_is_says_so_and_the_other_does_not():
    rules = SplitRules(max_source_tokens=4, too_long="cut")
    texts = ["0123", "0123456", "9876543", "9876", "0123"]
    found = run(texts, rules=rules)
    assert [t.text for t in found] == ["0123", "0123", "9876", "9876", "0123"]
    assert [t.status for t in found] == ["ok", "cut", "cut", "ok", "repeated"]


def test_rows_of_an_earlier_run_are_only_looked_at():
    source = list(records(["a", "b", "c", "b", "d"]))
    for record in source[:3]:
        record.is_done = True
    engine = FakeEngine()
    found = [t for chunk in stream(engine).run(source) for t in chunk]
    assert [(t.text, t.status) for t in found] == [("b", "repeated"), ("d", "ok")]
    assert sum(engine.batches) == 2


def test_stats_count_rows_tokens_and_marks():
    flow = stream()
    list(flow.run(records(["abc", "", "abc", "de"])))
    assert flow.stats.rows == 4
    found = {mark: number for mark, number in flow.stats.marks.items() if number}
    assert found == {"blank": 1, "repeated": 1, "ok": 2}
    assert flow.stats.target_tokens == 4 + 3
    assert flow.stats.source_tokens == 5 + 4
