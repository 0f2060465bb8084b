"""One translation run, from choices to exit code."""

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from nllb_cli import manifest
from nllb_cli.commands.dry import dry_run
from nllb_cli.commands.ends import Ends, resume_command
from nllb_cli.commands.kept import kept
from nllb_cli.commands.reporter import Reporter
from nllb_cli.commands.words import plural
from nllb_cli.errors import BadRowError, ExitCode, NllbError, UsageError
from nllb_cli.jobs import JobOptions, JobRun
from nllb_cli.options import DecodeOptions, EngineOptions, IoOptions
from nllb_cli.pipeline import Translator
from nllb_cli.plan import Job, plan, refuse_fields_of_lines, refuse_own_files
from nllb_cli.records import Translation
from nllb_cli.slices import Slice
from nllb_cli.stream import PAUSE_S, RunStats, Stream, StreamOptions
from nllb_cli.text.segments import SplitRules


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person chose on the command line."""

    inputs: list[str]
    output: str | None
    output_dir: str | None
    format: str | None
    source_lang: str
    target_langs: list[str]
    io: IoOptions
    slice: Slice
    model: str | None
    revision: str | None
    engine: EngineOptions
    decode: DecodeOptions
    max_source_tokens: int | None
    text: SplitRules
    mode: Literal["new", "overwrite", "resume"]
    record: str | None
    log_json: str | None
    is_dry: bool
    is_quiet: bool


def run(choices: Choices) -> int:
    """Translate everything and return the exit code."""
    _refuse_own_files(choices)
    shows_bar = not (choices.output in (None, "-") and not choices.output_dir and _is_terminal())
    with Reporter(choices.is_quiet, choices.log_json, shows_bar) as reporter:
        jobs = _jobs(choices)
        engine = choices.engine
        translator = Translator(
            choices.model,
            engine.device,
            engine.dtype,
            revision=choices.revision,
            gpu_memory=engine.gpu_memory,
            max_batch_rows=engine.max_batch_rows,
        )
        io, told = _with_languages(choices, translator)
        rules = translator.rules(choices.max_source_tokens, choices.text)
        job_run = JobRun(
            jobs,
            JobOptions(
                io, choices.format, choices.mode, choices.slice, choices.output_dir is not None
            ),
        )
        _check(choices, translator, job_run, rules)
        for note in (*translator.notes, *told):  # a refusal is one line, so that these come after
            reporter.say(note)
        pause_s = PAUSE_S if job_run.is_live else None
        options = StreamOptions(rules, io.on_error, translator.limits, pause_s)
        if choices.is_dry:
            dry_run(translator, job_run, choices.decode, options)
            return ExitCode.OK
        return _Run(choices, translator, job_run, options, reporter).run()


def _jobs(choices: Choices) -> list[Job]:
    """List what is to be done, or refuse what needs no model to be seen as wrong."""
    io = choices.io
    if not choices.source_lang and io.source_field is None:
        raise UsageError("--src is needed: the language of the text, such as eng_Latn")
    if not choices.target_langs and io.target_field is None:
        raise UsageError("--tgt is needed: the language to translate into, such as fra_Latn")
    replace(io, target_langs=tuple(choices.target_langs))  # refuses what does not go with them
    jobs = _plan(choices)
    refuse_fields_of_lines(jobs, choices.format, io)
    if choices.record is not None:
        manifest.check_record(choices.record)
    return jobs


def _check(choices: Choices, translator: Translator, job_run: JobRun, rules: SplitRules) -> None:
    """Find what would stop the run, at first what shows before the model is fetched."""
    job_run.check()
    settings = manifest.settings(
        manifest.model_mark(translator.fetch()),
        job_run.io,
        choices.decode,
        {**translator.numbers, **asdict(rules)},
        {"slice": asdict(choices.slice), "format": choices.format},
    )
    job_run.settings = settings
    if choices.record is not None and job_run.complete:
        manifest.refuse_changed(choices.record, job_run.complete, settings)
    if choices.mode == "resume":
        job_run.check_resumed()


def _plan(choices: Choices) -> list[Job]:
    return plan(
        choices.inputs,
        choices.output,
        choices.output_dir,
        format=choices.format,
        has_file_per_target=len(choices.target_langs) > 1,
    )


def _refuse_own_files(choices: Choices) -> None:
    """Before the log is opened, which may be an input."""
    if choices.record is not None or choices.log_json is not None:
        try:
            jobs = _plan(choices)
        except NllbError:
            return  # is told in its turn
        refuse_own_files(jobs, choices.record, choices.log_json)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _with_languages(choices: Choices, translator: Translator) -> tuple[IoOptions, list[str]]:
    """Find the codes of the languages that were asked for; say what is not literal."""
    io = choices.io
    names = [choices.source_lang, *choices.target_langs]
    found = {name: translator.language(name) for name in names if name}
    told = [f"language {name} is {it.code}" for name, it in found.items() if not it.is_literal]
    source, *targets = [found[name].code if name else "" for name in names]
    if source in targets and io.source_field is None and io.target_field is None:
        told.append(f"--src and --tgt are both {source}: the model words each row anew")
    return replace(io, source_lang=source, target_langs=tuple(targets)), told


class _Run:
    """A run that was checked as far as it can be before the model is loaded."""

    def __init__(
        self,
        choices: Choices,
        translator: Translator,
        job_run: JobRun,
        options: StreamOptions,
        reporter: Reporter,
    ) -> None:
        self._choices = choices
        self._translator = translator
        self._job_run = job_run
        self._options = options
        self._reporter = reporter
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._stats = RunStats()
        self._inputs: list[dict[str, Any]] = []

    @property
    def _can_resume(self) -> bool:
        has_files = self._choices.output_dir is not None or self._choices.output not in (None, "-")
        return has_files and not self._job_run.is_live

    def run(self) -> int:
        """Translate, report, and return the exit code."""
        reporter, complete = self._reporter, self._job_run.complete
        if complete:
            reporter.say(self._what_is_complete())
        if len(complete) == len(self._job_run.jobs):
            return ExitCode.OK
        reporter.event("start", command=manifest.command(), settings=self._job_run.settings)
        self._job_run.begin()  # before the record, which would tell that this run has made all
        self._begin_record()
        try:
            code = self._translate()
        except BaseException as error:
            self._record_failure(error)
            has_begun = self._choices.mode == "resume" and self._can_resume
            if has_begun and isinstance(error, KeyboardInterrupt):  # the model was being loaded
                reporter.say(self._how_to_continue())
            raise
        self._write_record(code)
        return code

    def _translate(self) -> int:
        choices, reporter = self._choices, self._reporter
        told = len(self._translator.notes)
        self._translator.load(choices.decode)
        for note in self._translator.notes[told:]:
            reporter.say(note)
        _tune_garbage_collection()
        stream, chunks = self._translator.stream(
            self._job_run.records(), choices.decode, self._options
        )
        self._stats = stream.stats
        try:
            code = self._pump(stream, chunks)
        except BrokenPipeError:
            return ExitCode.PIPE_CLOSED
        except BadRowError as error:
            num_rows, num_outputs = self._job_run.progress.done, len(self._job_run.jobs)
            if num_rows and self._can_resume:
                error.args = (f"{error}{kept(error, num_rows, num_outputs)}",)
            raise
        reporter.end(self._job_run.progress, stream.stats, code)
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            reporter.say(self._how_to_continue())
        return code

    def _pump(self, stream: Stream, chunks: Iterator[list[Translation]]) -> ExitCode:
        with ExitStack() as stack:
            ends = stack.enter_context(Ends())
            stack.enter_context(closing(self._job_run))
            stack.callback(stream.close)
            ends.attach(stream.request_stop, self._last_words)
            for chunk in chunks:
                if ends.notice:
                    self._reporter.say(ends.notice)
                    ends.notice = ""
                self._job_run.write(chunk)
                self._reporter.tick(self._job_run.progress, stream.stats)
            if ends.code is not None and not self._job_run.is_complete:
                return ends.code
        num_bad = stream.stats.marks["failed"] + self._job_run.progress.before["failed"]
        return ExitCode.BAD_ROWS if num_bad else ExitCode.OK

    def _what_is_complete(self) -> str:
        jobs = self._job_run.complete
        rest = "; --overwrite translates it again" if len(jobs) == 1 else ""
        others = f" and {plural(len(jobs) - 1, 'other')}" if len(jobs) > 1 else ""
        # a record would have told of other options, and nothing else does
        made = "" if self._choices.record else " whatever options it was made with"
        return f"{jobs[0].output}{others}: complete already, left as it is{made}{rest}"

    def _last_words(self) -> str:
        """Say of a run that ends at once how it goes on, if it has left rows."""
        has_rows = self._can_resume and self._job_run.progress.done
        return self._how_to_continue() if has_rows and not self._choices.is_quiet else ""

    def _how_to_continue(self) -> str:
        if self._can_resume:
            return f"stopped; this continues: {resume_command(manifest.command())}"
        rows, left = plural(self._job_run.progress.written, "row"), self._job_run.left
        where = f" in {' and '.join(map(str, left))}" if left and self._choices.output else ""
        return f"stopped after {rows}, complete{where}"

    def _begin_record(self) -> None:
        """Put away the record of an earlier run: if this one is killed, it would tell of that."""
        path, jobs = self._choices.record, self._job_run.jobs
        if path is None:
            return
        self._inputs = manifest.inputs(jobs)
        if not manifest.is_stream(path):
            self._write_record(None)

    def _record_failure(self, error: BaseException) -> None:
        code = error.exit_code if isinstance(error, NllbError) else None
        if isinstance(error, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
        with suppress(NllbError):  # of the two the run's own error is the one to tell
            self._write_record(code, " ".join(str(error).split()) or type(error).__name__)

    def _write_record(self, code: int | None, error: str | None = None) -> None:
        if self._choices.record is not None:
            manifest.write_record(self._choices.record, self._record(code, error))

    def _record(self, code: int | None, error: str | None) -> dict[str, Any]:
        stats, progress = self._stats, self._job_run.progress
        seconds = max(stats.elapsed_s, 1e-3)
        return {
            "command": manifest.command(),
            "started": self._started,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "exit_code": None if code is None else int(code),
            "error": error,
            "versions": manifest.versions(),
            "model": str(self._translator.directory),
            "revision": self._choices.revision,
            "settings": self._job_run.settings,
            "inputs": self._inputs,
            "rows": {"written": stats.rows, "from_before": progress.resumed, **stats.marks},
            "before": dict(progress.before),
            "inputs_finished": self._job_run.num_finished + self._job_run.num_skipped,
            "tokens": {
                "source": stats.source_tokens,
                "target": stats.target_tokens,
                "unknown": stats.unknown_tokens,
            },
            "seconds": round(seconds, 3),
            "rows_per_s": round(stats.rows / seconds, 1),
            "tokens_per_s": round(stats.target_tokens / seconds, 1),
            "engine_waited_s": round(stats.engine_waited_s, 3),
        }


def _tune_garbage_collection() -> None:
    """Collect seldom: rows are no cycles, and the model's objects stay to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)  # more than there are between reader and writer
