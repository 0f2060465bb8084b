"""One thread's share of the work: encode segments, decode some of them side by side, step by step.

It knows integers only.
"""

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
from nllb_cli.engine.candidates import CandidateFinder
from nllb_cli.model.cache import DecoderCache, Step
from nllb_cli.model.transformer import Transformer
from nllb_cli.options import DecodeOptions
from nllb_cli.records import Hypothesis, Segment

_PROMPT_POSITIONS = 2

Result = tuple[Segment, tuple[Hypothesis, ...]]


@dataclass(slots=True, eq=False)
class Request:
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
class Job:
    """One segment into one language: what takes a slot."""

    request: Request
    target_index: int
    encoder_output: Tensor  # [S, E]
    num_positions: int = 0  # in the self cache

    @property
    def limit(self) -> int:
        """At most so many tokens are produced."""
        return self.request.segment.max_target_tokens


@dataclass(frozen=True, slots=True)
class Finished:
    """A job's hypothesis."""

    job: Job
    hypothesis: Hypothesis


class Lane:
    """Segments that are decoded together; a thread calls it, one call at a time."""

    def __init__(self, model: Transformer, options: DecodeOptions, num_tokens: int) -> None:
        self.running: list[Job] = []
        self._model = model
        self._config = model.config
        self._beam_size = options.beam_size
        self._rule = SearchRule.of(options, self._config.eos_id)
        self._lm_head = model.parameters.lm_head
        self._device = self._lm_head.device
        vocab_size = self._config.vocab_size
        self._finder = CandidateFinder(self._lm_head, vocab_size, min(num_tokens, vocab_size))
        self._state: BeamState | None = None
        self._cache = self._new_cache()

    @torch.inference_mode()
    def encode(self, segments: list[Segment]) -> list[Job]:
        """Return the jobs of these segments; those of one segment share its encoding."""
        rows = [torch.tensor(segment.source_tokens) for segment in segments]
        lengths = torch.tensor([len(row) for row in rows])
        tokens = pad_sequence(rows, batch_first=True, padding_value=self._config.pad_id)
        output = self._model.encode(tokens.to(self._device), lengths.to(self._device))
        jobs = []
        for index, segment in enumerate(segments):
            request = Request(segment)
            encoder_output = output[index, : len(segment.source_tokens)]
            for target_index in range(len(segment.target_ids)):
                jobs.append(Job(request, target_index, encoder_output))
        return jobs

    @torch.inference_mode()
    def step(self, jobs: list[Job]) -> list[Finished]:
        """Let jobs in, then give each running segment its next token; return what is finished.

        New ones run their decoder prompt in the same pass, with one beam: it chooses the first
        tokens of all beams.
        """
        num_old = len(self.running)
        steps = []
        if num_old:
            assert self._state is not None
            num_positions = 1 + max(job.num_positions for job in self.running)
            state = with_room(self._state, num_positions)
            steps.append(self._cache.beam_step(state.last_tokens, num_positions))
            self._state = state
        if jobs:
            steps.append(self._enter(jobs))
        for job in self.running:
            job.num_positions += 1
        num_positions = max(job.num_positions for job in self.running)
        hidden = self._model.decode_steps(steps, num_positions, self._cache)
        assert self._state is not None
        candidates = self._candidates(hidden, num_old)
        self._state, parents = beam_step(self._state, candidates, self._rule)
        self._cache.advance(parents)
        return self._collect()

    def _enter(self, jobs: list[Job]) -> Step:
        """Give new jobs the next slots; return the step of their decoder prompts."""
        first = len(self.running)
        if not first:
            self._cache = self._new_cache()  # the old one's room was for others
        encoder_output = pad_sequence([job.encoder_output for job in jobs], batch_first=True)
        lengths = self._tensor([len(job.encoder_output) for job in jobs])
        self._cache.set_source(self._model.cross_keys_values(encoder_output), lengths, first)
        target_ids = self._tensor([j.request.segment.target_ids[j.target_index] for j in jobs])
        limits = self._tensor([job.limit for job in jobs])
        num_places = 16 if self._state is None else self._state.tokens.shape[2]
        state = initial_state(target_ids, limits, self._beam_size, num_places)
        self._state = state if self._state is None else join_segments(self._state, state)
        for job in jobs:
            job.num_positions = _PROMPT_POSITIONS - 1
        self.running += jobs
        start = torch.full_like(target_ids, self._config.decoder_start_id)
        return self._cache.prompt_step(first, torch.stack((start, target_ids), 1))

    def _candidates(self, hidden: Tensor, num_old: int) -> Candidates:
        """Return the candidates of old segments' beams and of new segments' one beam.

        Shapes: hidden [num_old * K + num_new * 2, E]
        """
        K = self._beam_size
        num_new = len(self.running) - num_old
        old = hidden[: num_old * K]
        new = hidden[num_old * K + _PROMPT_POSITIONS - 1 :: _PROMPT_POSITIONS]  # the last of each
        log_prob, token = self._finder.find(torch.cat((old, new)), 2 * K)
        repeats = torch.ones((len(token),), dtype=torch.int64, device=token.device)
        repeats[num_old * K :] = K  # the one beam's candidates stand for all beams
        shape = (num_old + num_new, K, token.shape[1])
        return Candidates(
            log_prob.repeat_interleave(repeats, 0).view(shape),
            token.repeat_interleave(repeats, 0).view(shape),
        )

    def _collect(self) -> list[Finished]:
        """Return what is finished and close the gaps that it leaves."""
        assert self._state is not None
        is_open = self._state.is_open.tolist()
        over = [index for index, goes_on in enumerate(is_open) if not goes_on]
        if not over:
            return []
        ended = best_hypotheses(select_segments(self._state, self._tensor(over)), self._rule.eos_id)
        finished = [Finished(self.running[i], best) for i, best in zip(over, ended, strict=True)]
        broken = [i for i, best in zip(over, ended, strict=True) if best.finish == "invalid"]
        if broken:
            self._cache.scrub(broken)
        self._close_gaps(self._state, is_open, over)
        return finished

    def _close_gaps(self, state: BeamState, is_open: list[bool], over: list[int]) -> None:
        """Move the last running segments into the slots of those that are over."""
        num_left = len(is_open) - len(over)
        targets = [index for index in over if index < num_left]
        sources = [index for index in range(num_left, len(is_open)) if is_open[index]]
        order = list(range(num_left))
        for source, target in zip(sources, targets, strict=True):
            order[target] = source
        if sources:
            num_positions = max(self.running[index].num_positions for index in sources)
            self._cache.move(sources, targets, num_positions)
        self.running = [self.running[index] for index in order]
        self._state = select_segments(state, self._tensor(order)) if order else None

    def _new_cache(self) -> DecoderCache:
        return DecoderCache(self._config, self._beam_size, like=self._lm_head)

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self._device)
