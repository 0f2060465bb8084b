"""The CUDA loop: sentences take slots as these free, graphs step them, results come back late.

The device never waits for the host inside a step. The host reads counters that are `_LAG` steps
old and decides by them alone, so that what it does depends on the input and not on the clock.
"""

import logging
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nllb_cli.engine.forward import SlotModel
from nllb_cli.engine.graphs import GraphRunner
from nllb_cli.engine.outcome import Arrival, fetch, hypotheses, send_to_host
from nllb_cli.engine.pool import RowPool
from nllb_cli.engine.sizes import SlotPlan, encode_tokens
from nllb_cli.engine.slots import Slots, SlotShape
from nllb_cli.engine.vocabulary import Vocabulary
from nllb_cli.errors import DeviceError
from nllb_cli.kernels.admission import NUM_DONE
from nllb_cli.kernels.search import STOP_FIRST, STOP_HEURISTIC, STOP_NEVER
from nllb_cli.model.parameters import Parameters
from nllb_cli.model.transformer import PositionTable
from nllb_cli.options import DecodeOptions
from nllb_cli.records import BatchSource, Finish, Hypothesis, Segment

_LAG = 2
_FETCH_STEPS = 8
_STOPPING = {"false": STOP_HEURISTIC, "true": STOP_FIRST, "never": STOP_NEVER}
_log = logging.getLogger("nllb")

Result = tuple[Segment, tuple[Hypothesis, ...]]


@dataclass(slots=True, eq=False)
class _Block:
    """Pool rows of sentences that were encoded together; free when all are done."""

    first_row: int
    num_rows: int
    num_open: int


@dataclass(slots=True, eq=False)
class _Sentence:
    """A segment that was encoded, and what is known of its translations."""

    segment: Segment
    hypotheses: list[Hypothesis | None]
    block: _Block

    @property
    def result(self) -> Result | None:
        """The segment's result once all targets are known."""
        known = tuple(h for h in self.hypotheses if h is not None)
        return (self.segment, known) if len(known) == len(self.hypotheses) else None


class SlotEngine:
    """Translates batches of integers through the slots of a fixed decode batch."""

    def __init__(
        self, parameters: Parameters, options: DecodeOptions, num_tokens: int, plan: SlotPlan
    ) -> None:
        """Ids from `num_tokens` on have no text and are never produced."""
        lm_head, vocab_size = parameters.lm_head, parameters.config.vocab_size
        self._model = (parameters, options, Vocabulary(lm_head, vocab_size, num_tokens))
        self._positions = PositionTable(parameters.config, parameters.target_embedding)
        self._plan = plan
        self._run: _SlotRun | None = None

    def translate(self, source: BatchSource) -> Iterator[Result]:
        """Yield each segment once, with its best hypothesis for each of its `target_ids`."""
        pending: deque[Segment] = deque()  # taken from the source, not yet encoded
        try:
            while True:
                if not pending:
                    batch = source.take(wait=True)
                    if batch is None:
                        if source.is_exhausted:
                            return
                        continue
                    pending.extend(batch.segments)
                yield from self._translate(source, pending)
        except BaseException:
            self._run = None  # nobody waits any more for what is in flight in it
            raise

    def _translate(self, source: BatchSource, pending: deque[Segment]) -> Iterator[Result]:
        """Translate with slots of one depth; with fewer slots where memory runs out."""
        run = self._run_for(max(segment.max_target_tokens for segment in pending))
        try:
            yield from run.translate(source, pending)
            return
        except torch.OutOfMemoryError:
            pending.extendleft(reversed(run.unfinished))  # these start again
        num_slots = run.shape.num_slots
        del run
        self._have_fewer_slots(num_slots)

    def _run_for(self, max_target_tokens: int) -> "_SlotRun":
        """Return slots that are deep enough; deeper ones replace those there are."""
        if self._run is not None and self._run.shape.max_target_tokens >= max_target_tokens:
            return self._run
        self._run = None  # its memory goes before the next one's comes
        while self._run is None:
            shape = self._plan.shape(max_target_tokens)
            with suppress(torch.OutOfMemoryError):
                self._run = _SlotRun(*self._model, shape, self._positions)
            if self._run is None:
                self._have_fewer_slots(shape.num_slots)
        return self._run

    def _have_fewer_slots(self, num_slots: int) -> None:
        """Give all slots up and plan for half of them."""
        if num_slots == 1:
            raise DeviceError(
                "out of memory with one row at a time: free the device from other programs, lower "
                "--beam or --max-target-tokens, or use --device cpu"
            )
        self._run = None
        torch.cuda.empty_cache()
        self._plan = replace(self._plan, max_batch_rows=num_slots // 2)
        _log.warning("out of memory: decoding %d rows at a time now", num_slots // 2)

    @property
    def shape(self) -> SlotShape | None:
        """The slots as they are; None before the first batch."""
        return self._run.shape if self._run else None

    def close(self) -> None:
        """Give the device's memory back."""
        self._run = None


class _SlotRun:
    """Slots of one depth, and what is in flight in them."""

    def __init__(
        self,
        parameters: Parameters,
        options: DecodeOptions,
        vocabulary: Vocabulary,
        shape: SlotShape,
        positions: PositionTable,
    ) -> None:
        like = parameters.lm_head
        self.shape = shape
        self._device = like.device
        self._slots = Slots(parameters.config, shape, like)
        stopping = STOP_FIRST if options.beam_size == 1 else _STOPPING[options.early_stopping]
        if options.early_stopping == "never" and options.length_penalty <= 0:
            stopping = STOP_HEURISTIC if options.beam_size > 1 else stopping
        lengths = torch.arange(shape.num_positions + 1).clamp(min=1).double()
        powers = lengths.pow(options.length_penalty).float().to(like.device)
        self._model = SlotModel(parameters, self._slots, vocabulary, powers, stopping, positions)
        self._runner = GraphRunner(self._model.step, shape.num_slots, shape.beam_size, like.device)
        self._pool = RowPool(shape.pool_rows)
        self._pool.take(2)  # idle slots read these
        self._encode_tokens = encode_tokens(shape.num_slots)
        self._free_entries = list(range(shape.num_entries))
        self._sentences: dict[int, tuple[_Sentence, int]] = {}  # entry: sentence, target
        self._counters: deque[Arrival] = deque()
        self._fetches: deque[tuple[int, Arrival]] = deque()  # (step, results on their way)
        self._num_places = 0
        self._num_steps = 0
        self._submitted = self._done = self._fetched = 0
        self._has_new = False

    @property
    def _outstanding(self) -> int:
        """Entries that wait or run, at most (counters are some steps old)."""
        return self._submitted - self._done

    @property
    def unfinished(self) -> list[Segment]:
        """The segments in flight, in the order in which they were encoded."""
        return list(dict.fromkeys(sentence.segment for sentence, _ in self._sentences.values()))

    def translate(self, source: BatchSource, pending: deque[Segment]) -> Iterator[Result]:
        """Run until all is done and nothing more comes, or the next segment needs deeper slots."""
        while True:
            yield from self._top_up(source, pending)
            if not self._sentences:
                return
            if self._outstanding:
                self._step()
            yield from self._collect()

    def _top_up(self, source: BatchSource, pending: deque[Segment]) -> Iterator[Result]:
        """Encode segments while more could run or wait than do."""
        wanted = self.shape.num_slots + self.shape.num_slots // 2
        while self._outstanding < wanted:
            chunk: list[Segment] = []
            yield from self._fill_chunk(source, pending, chunk)
            if not chunk or not self._submit(chunk, pending):
                return

    def _fill_chunk(
        self, source: BatchSource, pending: deque[Segment], chunk: list[Segment]
    ) -> Iterator[Result]:
        """Take segments that are encoded together; yield those without anything to do."""
        num_tokens = num_entries = 0
        while True:
            if not pending:
                batch = source.take(wait=False)
                if batch is None:
                    return
                pending.extend(batch.segments)
                continue
            segment = pending[0]
            trivial = _without_search(segment)
            if trivial is not None:
                pending.popleft()
                yield trivial
                continue
            num_tokens += len(segment.source_tokens) + 1
            num_entries += len(segment.target_ids)
            is_full = num_tokens > self._encode_tokens and chunk
            if is_full or num_entries > len(self._free_entries):
                return
            if segment.max_target_tokens > self.shape.max_target_tokens:
                return  # these slots run empty first
            chunk.append(pending.popleft())

    def _submit(self, chunk: list[Segment], pending: deque[Segment]) -> bool:
        """Encode a chunk and let it wait; False if there is no room yet."""
        lengths = [len(segment.source_tokens) for segment in chunk]
        num_rows = sum(lengths) + len(chunk)
        first_row = self._pool.take(num_rows)
        if first_row is None:
            pending.extendleft(reversed(chunk))
            return self._retry_smaller(len(chunk), num_rows)
        try:
            self._encode(chunk, lengths, first_row)
        except torch.OutOfMemoryError:
            self._pool.give_back(first_row, num_rows)
            pending.extendleft(reversed(chunk))
            if len(chunk) == 1:
                raise
            torch.cuda.empty_cache()
            self._encode_tokens = max(num_rows // 2, 1)
            _log.warning("out of memory: encoding %d tokens at a time now", self._encode_tokens)
            return True
        return True

    def _retry_smaller(self, num_segments: int, num_rows: int) -> bool:
        """Where nothing runs that could make room, encode less at a time."""
        if self._sentences:
            return False
        if num_segments == 1:
            raise RuntimeError(f"a source of {num_rows} tokens does not fit the pool")
        self._encode_tokens = max(num_rows // 2, 1)
        return True

    def _encode(self, chunk: list[Segment], lengths: list[int], first_row: int) -> None:
        """Encode and enqueue; from here on the device decides when each starts."""
        N = sum(lengths)
        self._model.encode(self._to_device(chunk), lengths, first_row)
        block = _Block(first_row, N + len(chunk), num_open=0)
        entries: list[int] = []
        rows: list[tuple[int, int, int, int, int]] = []
        start = first_row
        for index, segment in enumerate(chunk):
            sentence = _Sentence(segment, [None] * len(segment.target_ids), block)
            for target, language in enumerate(segment.target_ids):
                entry = self._free_entries.pop()
                self._sentences[entry] = (sentence, target)
                entries.append(entry)
                prefix = first_row + N + index
                rows.append((start, lengths[index], prefix, language, segment.max_target_tokens))
            start += lengths[index]
        block.num_open = len(entries)
        self._slots.enqueue(entries, torch.tensor(rows, dtype=torch.int32).T, self._submitted)
        self._submitted += len(entries)
        self._has_new = True

    def _to_device(self, chunk: list[Segment]) -> Tensor:
        """Return all source tokens one after the other. Shapes: [N] int32."""
        tokens = array("i")
        for segment in chunk:
            tokens.extend(segment.source_tokens)
        tensor = torch.frombuffer(tokens, dtype=torch.int32)
        if self._device.type == "cuda":
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor

    def _step(self) -> None:
        """Launch one decode step on the smallest rung that holds all that is in flight."""
        n = self._runner.rung(min(self._outstanding, self.shape.num_slots))
        if n < self._num_places:
            self._slots.compact()
        if self._has_new or n > self._num_places:
            self._slots.fill(n)
        self._has_new, self._num_places = False, n
        self._runner.run(n)
        self._num_steps += 1
        self._counters.append(send_to_host([self._slots.queue.counters]))

    def _collect(self) -> Iterator[Result]:
        """Read counters that are old enough, start fetching what is done, yield what arrived."""
        while len(self._counters) > (_LAG if self._outstanding else 0):
            self._done = int(self._counters.popleft().wait()[0][NUM_DONE])
        num_new = self._done - self._fetched
        if num_new and (self._num_steps % _FETCH_STEPS == 0 or not self._outstanding):
            arrival = fetch(self._slots, self._fetched, self._done)
            self._fetches.append((self._num_steps, arrival))
            self._fetched = self._done
        while self._fetches:
            step, arrival = self._fetches[0]
            if self._outstanding and self._num_steps <= step + _LAG:
                return
            self._fetches.popleft()
            yield from self._finish(arrival)

    def _finish(self, arrival: Arrival) -> Iterator[Result]:
        for entry, hypothesis in hypotheses(arrival):
            sentence, target = self._sentences.pop(entry)
            self._free_entries.append(entry)
            sentence.hypotheses[target] = hypothesis
            sentence.block.num_open -= 1
            if not sentence.block.num_open:
                self._pool.give_back(sentence.block.first_row, sentence.block.num_rows)
            result = sentence.result
            if result:
                yield result


def _without_search(segment: Segment) -> Result | None:
    """Return the result of a segment that needs no model: no source, or room for no token."""
    if segment.source_tokens and segment.target_ids and segment.max_target_tokens > 1:
        return None
    finish: Finish = "length" if segment.source_tokens else "empty"
    return segment, tuple(Hypothesis([], 0.0, finish) for _ in segment.target_ids)
