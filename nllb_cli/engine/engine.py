"""The loop on plain PyTorch: take batches, encode, decode step by step, refill, hand back.

It knows integers only. It is the CPU path and the slow twin of the CUDA path.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nllb_cli.engine.beam import (
    BeamState,
    Candidates,
    SearchRule,
    beam_step,
    best_hypotheses,
    initial_state,
    join_segments,
    select_segments,
    with_room,
)
from nllb_cli.engine.candidates import top_candidates
from nllb_cli.model.cache import DecoderCache
from nllb_cli.model.parameters import Parameters
from nllb_cli.model.transformer import Transformer
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Batch, BatchSource, Hypothesis, Segment

_RUNNING_BEAMS = 256
"""Rows of a decode step: enough for large products, few enough for the caches."""
_PROMPT_POSITIONS = 2

Result = tuple[Segment, tuple[Hypothesis, ...]]


@dataclass(slots=True, eq=False)
class _Request:
    """A segment and what is known of its translations."""

    segment: Segment
    hypotheses: list[Hypothesis | None] = field(init=False)

    def __post_init__(self) -> None:
        self.hypotheses = [None] * len(self.segment.target_ids)

    def put(self, target_index: int, hypothesis: Hypothesis) -> Result | None:
        """Note one translation; return the result once all are known."""
        self.hypotheses[target_index] = hypothesis
        known = tuple(h for h in self.hypotheses if h is not None)
        return (self.segment, known) if len(known) == len(self.hypotheses) else None


@dataclass(slots=True, eq=False)
class _Job:
    """One segment into one language: what takes a slot."""

    request: _Request
    target_index: int
    encoder_output: Tensor  # [S, E]
    num_positions: int = 0  # in the self cache


class PlainEngine:
    """Translates batches of integers on any device that PyTorch knows."""

    def __init__(
        self,
        parameters: Parameters,
        options: DecodeOptions,
        num_tokens: int,
        max_batch_rows: int | None = None,
    ) -> None:
        """Ids from `num_tokens` on have no text and are never produced."""
        self.model = Transformer(parameters)
        self.options = options
        self.sizes = (parameters.config.vocab_size, min(num_tokens, parameters.config.vocab_size))
        self.num_slots = max_batch_rows or max(_RUNNING_BEAMS // options.beam_size, 1)

    def translate(self, source: BatchSource) -> Iterator[Result]:
        """Yield each segment once, with its best hypothesis for each of its `target_ids`."""
        run = _Run(self)
        while True:
            while run.wants_batch:
                batch = source.take(wait=not run.has_work)
                if batch is None:
                    break
                yield from run.add(batch)
            if run.has_work:
                yield from run.step()
            elif source.is_exhausted:
                return

    def close(self) -> None:
        """Give memory back; nothing outlives a call of `translate`."""


class _Run:
    """The waiting and running segments of one call of `translate`."""

    def __init__(self, engine: PlainEngine) -> None:
        self._model = engine.model
        self._config = engine.model.config
        self._sizes = engine.sizes
        self._beam_size = engine.options.beam_size
        self._rule = SearchRule.of(engine.options, self._config.eos_id)
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._state: BeamState | None = None
        self._lm_head = engine.model.parameters.lm_head
        self._device = self._lm_head.device
        self._cache = DecoderCache(
            self._config, engine.num_slots, self._beam_size, like=self._lm_head
        )

    @property
    def has_work(self) -> bool:
        """True while a segment is waiting or running."""
        return bool(self._waiting or self._running)

    @property
    def wants_batch(self) -> bool:
        """True while more segments could run than are here."""
        return len(self._waiting) + len(self._running) < self._cache.num_slots

    @torch.inference_mode()
    def add(self, batch: Batch) -> list[Result]:
        """Encode a batch and let its segments wait; return those without anything to translate."""
        results = []
        segments = []
        for segment in batch.segments:
            if segment.source_tokens and segment.target_ids:
                segments.append(segment)
            else:
                nothing = tuple(Hypothesis([], 0.0, "empty") for _ in segment.target_ids)
                results.append((segment, nothing))
        if segments:
            self._encode(segments)
        return results

    def _encode(self, segments: list[Segment]) -> None:
        rows = [torch.tensor(segment.source_tokens) for segment in segments]
        lengths = torch.tensor([len(row) for row in rows])
        tokens = pad_sequence(rows, batch_first=True, padding_value=self._config.pad_id)
        output = self._model.encode(tokens.to(self._device), lengths.to(self._device))
        for index, segment in enumerate(segments):
            request = _Request(segment)
            encoder_output = output[index, : len(segment.source_tokens)]
            for target_index in range(len(segment.target_ids)):
                self._waiting.append(_Job(request, target_index, encoder_output))

    @torch.inference_mode()
    def step(self) -> list[Result]:
        """Fill free slots, produce one token for each running segment, return what is finished."""
        num_free = self._cache.num_slots - len(self._running)
        if self._waiting and num_free:
            self._admit([self._waiting.popleft() for _ in range(min(num_free, len(self._waiting)))])
        else:
            self._decode()
        return self._collect()

    def _admit(self, jobs: list[_Job]) -> None:
        """Run the decoder prompt with one beam, choose the first tokens, take slots."""
        prompt = DecoderCache(self._config, len(jobs), 1, like=self._lm_head)
        lengths = torch.tensor([len(job.encoder_output) for job in jobs], device=self._device)
        encoder_output = pad_sequence([job.encoder_output for job in jobs], batch_first=True)
        prompt.set_source(self._model.cross_keys_values(encoder_output), lengths)
        segments = [(job.request.segment, job.target_index) for job in jobs]
        target_ids = self._tensor([segment.target_ids[index] for segment, index in segments])
        limits = self._tensor([segment.max_target_tokens for segment, _ in segments])
        start = torch.full_like(target_ids, self._config.decoder_start_id)
        self._model.decode(start[:, None], 1, prompt)
        hidden = self._model.decode(target_ids[:, None], 2, prompt)

        state = initial_state(target_ids, limits, self._beam_size, self._num_token_places())
        state, parents = beam_step(state, self._first_candidates(hidden), self._rule)
        self._cache.insert(len(self._running), prompt, _PROMPT_POSITIONS)
        self._running += jobs
        for job in jobs:
            job.num_positions = _PROMPT_POSITIONS
        self._state = state if self._state is None else join_segments(self._state, state)

    def _decode(self) -> None:
        """Give each running segment its next token."""
        assert self._state is not None
        for job in self._running:
            job.num_positions += 1
        num_positions = max(job.num_positions for job in self._running)
        state = with_room(self._state, num_positions)
        hidden = self._model.decode(state.last_tokens, num_positions, self._cache)
        self._state, parents = beam_step(state, self._candidates(hidden), self._rule)
        self._cache.advance(parents)

    def _candidates(self, hidden: Tensor) -> Candidates:
        """Shapes: hidden [B, K, E]."""
        B, K, _ = hidden.shape
        found = top_candidates(
            hidden.flatten(0, 1), self._lm_head, self._sizes, 2 * self._beam_size
        )
        log_prob, token = (tensor.view(B, K, -1) for tensor in found)
        return Candidates(log_prob, token)

    def _first_candidates(self, hidden: Tensor) -> Candidates:
        """Return the candidates when one beam exists. Shapes: hidden [B, 1, E]."""
        found = self._candidates(hidden)
        shape = (-1, self._beam_size, -1)
        return Candidates(found.log_prob.expand(shape), found.token.expand(shape))

    def _num_token_places(self) -> int:
        return 16 if self._state is None else self._state.tokens.shape[2]

    def _collect(self) -> list[Result]:
        """Return what is finished and close the gaps that it leaves."""
        assert self._state is not None
        is_open = self._state.is_open.tolist()
        over = [index for index, goes_on in enumerate(is_open) if not goes_on]
        if not over:
            return []
        results = []
        finished = select_segments(self._state, self._tensor(over))
        for index, hypothesis in zip(
            over, best_hypotheses(finished, self._rule.eos_id), strict=True
        ):
            job = self._running[index]
            result = job.request.put(job.target_index, hypothesis)
            results += [result] if result else []
            if hypothesis.finish == "invalid":
                self._cache.scrub([index])
        self._close_gaps(is_open, over)
        return results

    def _close_gaps(self, is_open: list[bool], over: list[int]) -> None:
        """Move the last running segments into the slots of those that are over."""
        num_left = len(is_open) - len(over)
        targets = [index for index in over if index < num_left]
        sources = [index for index in range(num_left, len(is_open)) if is_open[index]]
        order = list(range(num_left))
        for source, target in zip(sources, targets, strict=True):
            order[target] = source
        if sources:
            num_positions = max(self._running[index].num_positions for index in sources)
            self._cache.move(sources, targets, num_positions)
        self._running = [self._running[index] for index in order]
        assert self._state is not None
        self._state = select_segments(self._state, self._tensor(order)) if order else None

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self._device)
