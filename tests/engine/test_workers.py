"""A pool of processes is an engine: every segment once, whatever happens to one of them."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch

from nllb_cli import Translator
from nllb_cli.engine.engine import PlainEngine
from nllb_cli.engine.workers import EnginePool
from nllb_cli.errors import DeviceError
from nllb_cli.model.weights import load_parameters
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Batch, Record
from nllb_cli.stream import Stream, StreamOptions
from nllb_cli.text.buckets import Limits
from tests.engine import worker_engines
from tests.engine.parity import ListSource, make_segments, translate
from tests.engine.worker_engines import maker
from tests.reference import make_checkpoint

ROOT = Path(__file__).parent.parent.parent
BAD = 89


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    make_checkpoint(directory, seed=5)
    return directory


def open_pool(path, *troubles):
    return EnginePool([(f"cpu {i}", maker(path, **trouble)) for i, trouble in enumerate(troubles)])


@pytest.fixture(scope="module")
def pool(path):
    """Two processes, one slower than the other; both fail at one token and go on."""
    trouble = {"fate": (BAD, "fail"), "notes": ["a note"]}
    shared = open_pool(path, {**trouble, "delay_s": 0.01}, trouble)
    yield shared
    shared.close()


def random_segments(num_rows, seed=0):
    rng = random.Random(seed)
    rows = [
        [90, *(rng.randrange(4, 80) for _ in range(rng.randrange(1, 9))), 2]
        for _ in range(num_rows)
    ]
    return make_segments(rows, (91, 93), [9] * num_rows)


def assert_right(found, path, segments):
    """Each segment has the tokens that one engine gives it."""
    parameters = load_parameters(path, torch.device("cpu"), torch.float32)
    engine = PlainEngine(parameters, DecodeOptions(2), 95, max_batch_rows=4)
    expected = translate(engine, segments)
    assert [[h.tokens for h in row] for row in found] == [
        [h.tokens for h in row] for row in expected
    ]
    scores = [h.score for row in expected for h in row]
    assert [h.score for row in found for h in row] == pytest.approx(scores, abs=1e-4)


def is_alive(pid):
    """Whether a process runs (one that waits to be reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def test_two_processes_give_what_one_engine_gives_also_twice(path, pool):
    assert pool.notes == ["a note"]
    assert len(set(pool.pids)) == 2
    for seed in range(2):
        segments = random_segments(40, seed)
        segments.insert(3, make_segments([[]], (91, 93), [9])[0])
        assert_right(translate(pool, segments), path, segments)


@pytest.mark.slow
def test_a_slow_process_does_not_stall_the_other(path):
    """One takes half a second a row: it must end up with hardly any of the 60."""
    pool = open_pool(path, {"delay_s": 0.5}, {})
    segments = random_segments(60)
    start = time.monotonic()
    found = translate(pool, segments, rows_per_batch=2)
    seconds = time.monotonic() - start
    pool.close()
    assert_right(found, path, segments)
    # it takes 4 rows and has 4 in reserve; shared out evenly it would be 30 rows
    assert seconds < 0.5 * 20


class ByteCodec:
    """A token a letter; languages as the tiny model has them."""

    languages = {"eng_Latn": 90, "fra_Latn": 91}
    unk_id = 3

    def knows(self, text):
        return True

    def encode(self, texts, source_lang):
        return [[90, *(ord(letter) - 60 for letter in text), 2] for text in texts]

    def decode(self, tokens):
        return [" ".join(map(str, ids)) for ids in tokens]


def test_the_stream_restores_the_order(pool):
    rng = random.Random(4)
    texts = ["".join(rng.choices("abcdefgh", k=rng.randrange(1, 12))) for _ in range(90)]
    records = [Record(i, (text,), "eng_Latn", ("fra_Latn",)) for i, text in enumerate(texts)]
    options = StreamOptions(limits=Limits(window_rows=16, max_batch_rows=3))
    stream = Stream(pool, ByteCodec(), options)
    found = [row for chunk in stream.run(iter(records)) for row in chunk]
    assert [row.record.index for row in found] == list(range(len(records)))
    assert all(row.text for row in found)


def test_rows_of_a_process_that_dies_go_to_the_others(path, caplog):
    pool = open_pool(path, {"delay_s": 0.05}, {})
    segments = random_segments(50)
    victim = pool.pids[0]
    source = ListSource([Batch(segments[i : i + 4]) for i in range(0, 50, 4)])
    found = []
    for number, (segment, _) in enumerate(pool.translate(source)):
        found.append(segment)
        if number == 3:
            os.kill(victim, signal.SIGKILL)
    assert Counter(found) == Counter(segments)
    assert len(pool.pids) == 1
    (message,) = caplog.messages
    assert message.startswith("cpu 0: its process ended (killed by SIGKILL")
    more = random_segments(9, seed=8)
    assert_right(translate(pool, more), path, more)
    pool.close()


@pytest.mark.slow
def test_rows_on_which_two_die_end_the_run_with_a_line(path):
    fate = {"fate": (BAD, "die")}
    pool = open_pool(path, fate, fate, fate)
    segments = random_segments(30)
    segments[20].source_tokens[1] = BAD
    with pytest.raises(DeviceError, match=r"exit code 7\), on the same rows; .*--resume"):
        translate(pool, segments)
    assert len(pool.pids) == 1
    pool.close()


def test_the_last_one_that_dies_ends_the_run_with_a_line(path):
    pool = open_pool(path, {"delay_s": 0.02})
    os.kill(pool.pids[0], signal.SIGKILL)
    with pytest.raises(DeviceError, match="killed by SIGKILL.*no other is left"):
        translate(pool, random_segments(30))
    with pytest.raises(DeviceError, match="have ended"):
        translate(pool, random_segments(3))
    pool.close()


def test_an_error_in_a_process_is_raised_here_and_the_pool_goes_on(path, pool):
    segments = random_segments(20)
    segments[9].source_tokens[1] = BAD
    with pytest.raises(RuntimeError, match=r"^cpu \d: ValueError: this token is bad$"):
        translate(pool, segments)
    for segment in segments[:9]:  # one by one, as the stream looks for the culprit
        assert_right(translate(pool, [segment]), path, [segment])
    with pytest.raises(RuntimeError, match="ValueError"):
        translate(pool, [segments[9]])
    assert_right(translate(pool, segments[10:]), path, segments[10:])


def test_what_a_person_can_mend_stays_that(path):
    pool = open_pool(path, {"fate": (BAD, "refuse")})
    segments = random_segments(1)
    segments[0].source_tokens[1] = BAD
    with pytest.raises(DeviceError, match="^this token is bad$"):
        translate(pool, segments)
    pool.close()


def test_results_of_a_call_that_was_given_up_do_not_come_out_of_the_next(path, pool):
    first, second = random_segments(30, seed=1), random_segments(30, seed=2)
    results = pool.translate(ListSource([Batch(first)]))
    next(results)
    results.close()
    assert_right(translate(pool, second), path, second)


class PausingSource(ListSource):
    """Has its next batch only when the engine would wait for it."""

    def take(self, wait):
        return super().take(wait) if wait else None


def test_a_pause_in_the_input_holds_nothing_back(pool):
    first, second = random_segments(2)
    source = PausingSource([Batch([first]), Batch([second])])
    results = pool.translate(source)
    assert next(results)[0] is first
    assert len(source.batches) == 1
    assert [segment for segment, _ in results] == [second]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "message"),
    [("refuse", "^does not fit: 2 GiB needed$"), ("die", r"cpu 1: .*exit code 9\).*__main__")],
)
def test_a_process_that_cannot_start_is_an_error_and_ends_the_others(path, bad, message):
    makers = [("cpu 0", maker(path)), ("cpu 1", partial(getattr(worker_engines, bad), path))]
    before = children()
    with pytest.raises(DeviceError, match=message):
        EnginePool(makers)
    assert children() <= before


def children():
    """Return the processes that this one has started and that run."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
    )
    return {line for line in found.stdout.splitlines() if "spawn_main" in line}


SCRIPT = """
    import signal, sys, time
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    sys.path.insert(0, {root!r})
    from nllb_cli.engine.workers import EnginePool
    from tests.engine.parity import ListSource, make_segments
    from tests.engine.worker_engines import maker
    from nllb_cli.records import Batch

    if __name__ == "__main__":
        path = Path(sys.argv[1])
        slow = maker(path, delay_s=0.2)
        pool = EnginePool([("cpu 0", slow), ("cpu 1", slow)])
        segments = make_segments([[90, 5, 2]] * 400, (91, 93), [9] * 400)
        results = pool.translate(ListSource([Batch([segment]) for segment in segments]))
        next(results)
        print(*pool.pids, flush=True)
        for _ in results:
            {each}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGINT to the group", "SIGKILL to the parent", "its own end"])
def test_nothing_outlives_the_parent(path, tmp_path, end):
    """Ctrl-C goes to all processes of the terminal; SIGKILL leaves the parent no time at all."""
    script = tmp_path / "script.py"
    each = "break" if end == "its own end" else "pass"
    script.write_text(textwrap.dedent(SCRIPT).format(root=str(ROOT), each=each))
    parent = subprocess.Popen(
        [sys.executable, str(script), str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    if end == "SIGINT to the group":
        time.sleep(0.3)
        os.killpg(parent.pid, signal.SIGINT)
    elif end == "SIGKILL to the parent":
        parent.kill()
    _, said = parent.communicate(timeout=20)
    assert wait_until_gone(pids)
    if end == "its own end":
        assert (parent.returncode, said) == (0, "")
    assert said.count("Traceback") <= 1  # the workers die silently


@pytest.mark.slow
def test_the_door_with_two_devices_gives_what_it_gives_with_one():
    lines = [f"The man with number {i} reads {'a book and ' * (i % 4)}a letter." for i in range(24)]
    lines[5] = ""
    alone = Translator(device="cpu")
    expected = [row.text for row in alone.translate(lines, "eng_Latn", "fra_Latn", beam=2)]
    together = Translator(device="cpu,cpu")
    found = [row.text for row in together.translate(lines, "eng_Latn", "fra_Latn", beam=2)]
    together.close()
    assert found == expected
    assert together.notes == alone.notes
    assert together.devices == ["cpu", "cpu"]


@pytest.mark.slow
def test_closing_twice_and_from_another_thread(path):
    pool = open_pool(path, {"delay_s": 0.1}, {"delay_s": 0.1})
    pids = pool.pids
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(pool.translate(ListSource([Batch(random_segments(60))])))
    )
    thread.start()
    time.sleep(0.4)
    pool.close()
    pool.close()
    thread.join(10)
    assert not thread.is_alive()
    assert not any(map(is_alive, pids))
    assert len(found) < 60
