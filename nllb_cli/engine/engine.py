"""The loop on plain PyTorch: take batches, give encoding and decode steps to lanes, hand back.

It is the CPU path and the slow twin of the CUDA path, and knows integers only. On a CPU each lane
is a thread that works alone: small operations then run side by side too, and nobody waits in every
operation for a core that is busy with something else.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import torch

from nllb_cli.engine.lane import Finished, Job, Lane, Result
from nllb_cli.model.parameters import Parameters
from nllb_cli.model.transformer import Transformer
from nllb_cli.options import DecodeOptions
from nllb_cli.records import BatchSource, Hypothesis, Segment

_RUNNING_BEAMS = 320
"""Rows of a lane's decode step: enough for large products, few enough for the caches."""
_MAX_LANES = 4
_SMALLEST_LANE = 16
"""Segments; with fewer a lane, one lane with all threads is better."""
_REFILL_SHARE = 0.1
"""A lane is filled up when so much of it is free."""
_GROUP_TOKENS = 1024
"""Padded source tokens that are encoded in one go."""
_MEMORY_SHARE = 0.25
"""What all lanes' caches may take of the machine's memory."""

_Task = Callable[[], list[Job] | list[Finished]]


@dataclass(frozen=True, slots=True)
class _Room:
    """How many segments a lane may run at once."""

    num_slots: int
    beam_size: int
    num_positions: int
    """Source positions, and target positions of a beam, that fit into a lane's memory."""

    def num_fitting(self, running: list[Job], waiting: deque[Job], count: int) -> int:
        """Return how many of the first `count` waiting jobs fit beside the running ones.

        Every slot is as wide as the widest. One job always fits where nothing is running.
        """
        limit = max((job.limit for job in running), default=0)
        width = max((len(job.encoder_output) for job in running), default=0)
        for number in range(count):
            job = waiting[number]
            limit, width = max(limit, job.limit), max(width, len(job.encoder_output))
            num_slots = len(running) + number + 1
            if num_slots > 1 and num_slots * (limit * self.beam_size + width) > self.num_positions:
                return number
        return count


class PlainEngine:
    """Translates batches of integers on any device that PyTorch knows."""

    def __init__(
        self,
        parameters: Parameters,
        options: DecodeOptions,
        num_tokens: int,
        max_batch_rows: int | None = None,
        num_lanes: int | None = None,
    ) -> None:
        """Ids from `num_tokens` on have no text and are never produced."""
        self._model = Transformer(parameters)
        self._options = options
        self._num_tokens = num_tokens
        lane_slots = max(_RUNNING_BEAMS // options.beam_size, 1)
        if num_lanes is None:
            is_on_cpu = parameters.lm_head.device.type == "cpu"
            num_lanes = min(torch.get_num_threads(), _MAX_LANES) if is_on_cpu else 1
            if (max_batch_rows or lane_slots * num_lanes) < _SMALLEST_LANE * num_lanes:
                num_lanes = 1
        if max_batch_rows is not None:
            lane_slots = max(min(lane_slots, max_batch_rows // num_lanes), 1)
        self.num_slots = num_lanes * lane_slots
        self._num_lanes = num_lanes
        position_bytes = 2 * parameters.config.decoder_layers * parameters.config.d_model
        position_bytes *= parameters.lm_head.itemsize
        memory_bytes = int(_memory_bytes(parameters.lm_head.device) * _MEMORY_SHARE)
        num_positions = memory_bytes // num_lanes // position_bytes
        self._room = _Room(lane_slots, options.beam_size, num_positions)

    def translate(self, source: BatchSource) -> Iterator[Result]:
        """Yield each segment once, with its best hypothesis for each of its `target_ids`."""
        lanes = [Lane(self._model, self._options, self._num_tokens) for _ in range(self._num_lanes)]
        run = _Run(source, lanes, self._room)
        try:
            while run.start_tasks():
                yield from run.results()
        finally:
            run.stop()

    def close(self) -> None:
        """Give memory back; nothing outlives a call of `translate`."""


def _memory_bytes(device: torch.device) -> int:
    """Return the memory of the device, or of the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Run:
    """One call of `translate`: who waits, who runs, and what each lane does next."""

    def __init__(self, source: BatchSource, lanes: list[Lane], room: _Room) -> None:
        self._source = source
        self._lanes = lanes
        self._room = room
        self._idle = list(lanes)
        self._groups: deque[list[Segment]] = deque()  # to be encoded
        self._waiting: deque[Job] = deque()  # to be decoded
        self._ready: list[Result] = []
        self._tasks: dict[Future[list[Job] | list[Finished]], Lane] = {}
        self._num_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(len(lanes), "nllb-lane") if len(lanes) > 1 else None

    def start_tasks(self) -> bool:
        """Give each idle lane something to do; return whether anything is still to come."""
        while True:
            idle, self._idle = self._idle, []
            for lane in idle:
                task = self._next_task(lane)
                if task is None:
                    self._idle.append(lane)
                else:
                    self._start(lane, task)
            if self._tasks or self._ready:
                return True
            # Only now may it wait: nothing is in hand that waiting would hold back.
            if not self._take(is_patient=True) and not self._ready and self._source.is_exhausted:
                return False

    def results(self) -> list[Result]:
        """Return what is known now, or else what is known once a lane is through with its task."""
        if self._tasks and not self._ready:
            done, _ = wait(self._tasks, return_when=FIRST_COMPLETED)
            for task in done:
                self._idle.append(self._tasks.pop(task))
                self._note(task.result())
        ready, self._ready = self._ready, []
        return ready

    def stop(self) -> None:
        """Wait for the tasks that were begun, and leave no thread behind."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self._num_threads)

    def _note(self, outcome: list[Job] | list[Finished]) -> None:
        for item in outcome:
            if isinstance(item, Job):
                self._waiting.append(item)
            else:
                result = item.job.request.put(item.job.target_index, item.hypothesis)
                self._ready += [result] if result else []

    def _next_task(self, lane: Lane) -> _Task | None:
        """Decode while the lane is full enough; else encode what is missing, then fill it up."""
        num_free = self._room.num_slots - len(lane.running)
        if not lane.running or num_free >= max(self._room.num_slots * _REFILL_SHARE, 1):
            if len(self._waiting) < num_free and (self._groups or self._take(is_patient=False)):
                return partial(lane.encode, self._groups.popleft())
            jobs = self._share(lane, num_free)
            if jobs:
                return partial(lane.step, jobs)
        return partial(lane.step, []) if lane.running else None

    def _share(self, lane: Lane, num_free: int) -> list[Job]:
        """Take jobs for a lane; the last ones are shared out evenly."""
        count = min(num_free, len(self._waiting))
        if not self._groups:
            num_running = sum(len(lane.running) for lane in self._lanes)
            fair = -(-(num_running + len(self._waiting)) // len(self._lanes))
            count = min(count, max(fair - len(lane.running), 0))
        count = self._room.num_fitting(lane.running, self._waiting, count)
        return [self._waiting.popleft() for _ in range(count)]

    def _start(self, lane: Lane, task: _Task) -> None:
        if self._pool is None:
            future: Future[list[Job] | list[Finished]] = Future()
            future.set_result(task())
        else:
            # Who works alone has all the cores.
            is_alone = not self._tasks and not any(o.running for o in self._lanes if o is not lane)
            share = max(self._num_threads // len(self._lanes), 1)
            num_threads = self._num_threads if is_alone else share
            future = self._pool.submit(_run_with_threads, task, num_threads)
        self._tasks[future] = lane

    def _take(self, is_patient: bool) -> bool:
        """Take a batch apart, if there is one: what has nothing to translate is ready."""
        batch = self._source.take(wait=is_patient)
        if batch is None:
            return False
        full = []
        for segment in batch.segments:
            if segment.source_tokens and segment.target_ids:
                full.append(segment)
            else:
                nothing = tuple(Hypothesis([], 0.0, "empty") for _ in segment.target_ids)
                self._ready.append((segment, nothing))
        self._groups.extend(_groups(full))
        return bool(full)


def _groups(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Yield runs of segments that are encoded together."""
    group: list[Segment] = []
    width = 0
    for segment in segments:
        width = max(width, len(segment.source_tokens))
        if group and (len(group) + 1) * width > _GROUP_TOKENS:
            yield group
            group, width = [], len(segment.source_tokens)
        group.append(segment)
    if group:
        yield group


def _run_with_threads(task: _Task, num_threads: int) -> list[Job] | list[Finished]:
    """Run a task whose operations use so many threads."""
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
    return task()
