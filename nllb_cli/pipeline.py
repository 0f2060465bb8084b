"""The door for programs: a model that translates whatever is iterated, in order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nllb_cli.errors import InputError, NllbError, UsageError
from nllb_cli.languages import Resolution, resolve
from nllb_cli.model.config import read_config
from nllb_cli.model.hub import BUNDLED_MODEL, EXAMPLE, resolve_model
from nllb_cli.options import DecodeOptions, EngineOptions
from nllb_cli.records import Engine, Record, Translation
from nllb_cli.stream import Stream, StreamOptions
from nllb_cli.text.buckets import Limits
from nllb_cli.text.emoji import Emoji
from nllb_cli.text.normalize import Normalize
from nllb_cli.text.segments import NUM_SPECIALS, SplitRules, TooLong, check_too_long
from nllb_cli.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from nllb_cli.engine.devices import Placement

BUNDLED_NOTE = (
    "using the small bundled model (everyday sentences, six languages);"
    f" --model {EXAMPLE} is NLLB-200 with 202 languages"
)

CPU_LIMITS = Limits(window_rows=512, first_window_rows=64, max_batch_tokens=4096, max_batch_rows=64)
GPU_LIMITS = Limits(
    window_rows=8192, first_window_rows=2048, max_batch_tokens=16384, max_batch_rows=512
)
_OPTION = re.compile(r"(?<![^\s(])--([a-z]+(?:-[a-z]+)*)")
_NO_ARGUMENT = re.compile(r", --on-error keep[^,;]*")


class Translator:
    """A model on a device. Weights are loaded when they are first needed."""

    def __init__(
        self,
        model: str | Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        *,
        revision: str | None = None,
        gpu_memory: float = 0.9,
        max_batch_rows: int | None = None,
    ) -> None:
        """Find the model and read its languages.

        `model` is a directory or a hub id; None is `NLLB_MODEL`, else the bundled model.
        `device` is auto, cpu, cuda or cuda:N; several with commas, or all, are one process each.
        """
        self._options = EngineOptions(device, dtype, gpu_memory, max_batch_rows)
        self._name = None if model is None else str(model)
        self._revision = revision
        self.directory = resolve_model(self._name, revision, with_weights=False)
        self.config = read_config(self.directory)
        self.tokenizer = load_tokenizer(self.directory)
        self.notes = list(self.tokenizer.notes)
        """What a person should know about this model."""
        if self.directory == BUNDLED_MODEL:
            self.notes.insert(0, BUNDLED_NOTE)
        self._parameters: Any = None
        self._engine: tuple[DecodeOptions, Engine] | None = None

    def language(self, name: str) -> Resolution:
        """Find the model's code for a code, tag or English name."""
        try:
            return resolve(name, self.tokenizer.languages)
        except UsageError as error:
            if self.directory != BUNDLED_MODEL:
                raise
            raise UsageError(f"{error}; --model {EXAMPLE} knows 202 languages") from None

    def load(self, decode: DecodeOptions) -> Engine:
        """Load the weights, if they are not, and return an engine with these settings."""
        if self._engine is None or self._engine[0] != decode:
            if self._engine is not None:
                self._engine[1].close()  # its memory goes before the next one's comes
            self._engine = (decode, self._new_engine(decode))
        return self._engine[1]

    def stream(
        self, records: Iterable[Record | None], decode: DecodeOptions, options: StreamOptions
    ) -> tuple[Stream, Iterator[list[Translation]]]:
        """Return a run over records, and its translations as lists of what is ready."""
        stream = Stream(self.load(decode), self.tokenizer, options)
        return stream, stream.run(records)

    def translate(
        self,
        texts: Iterable[str | None],
        src: str,
        tgt: str | Sequence[str],
        *,
        beam: int = 4,
        length_penalty: float = 1.0,
        early_stopping: bool | str = False,
        max_source_tokens: int | None = None,
        max_target_tokens: int | None = None,
        too_long: TooLong = "error",
        normalize: Normalize = "auto",
        emoji: Emoji = "keep",
    ) -> Iterator[Translation]:
        """Yield the translation of each text, in order, as soon as it is there.

        The texts are iterated in another thread, a few thousand ahead. Several target languages
        give each translation several `texts`; None and blank texts come back as they are.
        """
        with _in_arguments():
            source_lang = self.language(src).code
            names = [tgt] if isinstance(tgt, str) else tgt
            targets = tuple(self.language(name).code for name in names)
            if not targets:
                raise UsageError("--tgt is needed: the language to translate into, or several")
            decode = DecodeOptions(beam, length_penalty, str(early_stopping).lower())  # type: ignore[arg-type]
            wanted = SplitRules(
                max_target_tokens=max_target_tokens,
                too_long=check_too_long(too_long),
                normalize=normalize,
                emoji=emoji,
            )
            rules = self.rules(max_source_tokens, wanted)
            if isinstance(texts, str):
                raise UsageError("texts is a str, whose letters would be translated; give a list")
            records = (
                Record(index, (_checked(index, text),), source_lang, targets)
                for index, text in enumerate(texts)
            )
            _, chunks = self.stream(records, decode, StreamOptions(rules, limits=self.limits))
        return _one_by_one(chunks)

    def rules(self, max_source_tokens: int | None, wanted: SplitRules) -> SplitRules:
        """Return the rules of a run, or refuse limits that the model has no positions for.

        `max_source_tokens` None is all that the model has.
        """
        most = self.config.max_positions - NUM_SPECIALS
        source, target = max_source_tokens, wanted.max_target_tokens
        source = most if source is None else source
        if not 1 <= source <= most:
            raise UsageError(f"--max-source-tokens {source}: choose 1 to {most} with this model")
        if target is not None and not 2 <= target <= most:
            raise UsageError(f"--max-target-tokens {target}: choose 2 to {most} with this model")
        return replace(wanted, max_source_tokens=source)

    @property
    def limits(self) -> Limits:
        """How much is read ahead: a GPU has more rows in hand, several GPUs have more still."""
        if not self.is_on_gpu:
            return CPU_LIMITS
        return replace(GPU_LIMITS, window_rows=GPU_LIMITS.window_rows * len(self._placement.places))

    def close(self) -> None:
        """Give the memory back."""
        if self._engine is not None:
            self._engine[1].close()
        self._engine = self._parameters = None

    @property
    def is_on_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return self._placement.places[0].device != "cpu"

    @property
    def devices(self) -> list[str]:
        """Where the model runs."""
        return [place.device for place in self._placement.places]

    @property
    def numbers(self) -> dict[str, str]:
        """Kind of device and number format, as far as they may change a text."""
        place = self._placement.places[0]
        return {"device": place.device.split(":")[0], "dtype": place.dtype}

    @cached_property
    def _placement(self) -> "Placement":
        from nllb_cli.engine.devices import choose_places

        return choose_places(self._options)

    def fetch(self) -> Path:
        """Download the weights, if they are not here, and return the model's directory."""
        self.directory = resolve_model(self._name, self._revision)
        return self.directory

    def _new_engine(self, decode: DecodeOptions) -> Engine:
        from nllb_cli.engine.devices import load_model, make_engine, make_pool

        places, num_tokens = self._placement.places, self.tokenizer.size
        if len(places) > 1:
            pool = make_pool(self.fetch(), places, decode, self._options, num_tokens)
            self._note(*self._placement.notes, *pool.notes)
            return pool
        if self._parameters is None:
            self._parameters = load_model(
                self.fetch(), places[0], decode, self._options, num_tokens
            )
            self._note(*self._placement.notes, *self._parameters.notes)
        return make_engine(self._parameters, decode, self._options, num_tokens)

    def _note(self, *notes: str) -> None:
        self.notes += [note for note in notes if note not in self.notes]


@contextmanager
def _in_arguments() -> Iterator[None]:
    """Where an error speaks of options of the command line, name arguments instead."""
    try:
        yield
    except NllbError as error:
        text = _NO_ARGUMENT.sub("", str(error)).replace("--devices", "--device")
        error.args = (_OPTION.sub(lambda found: found[1].replace("-", "_"), text),)
        raise


def _one_by_one(chunks: Iterator[list[Translation]]) -> Iterator[Translation]:
    with _in_arguments():
        for chunk in chunks:
            yield from chunk


def _checked(index: int, text: Any) -> str | None:
    if text is None or isinstance(text, str):
        return text
    raise InputError(f"row {index + 1}: {type(text).__name__} where str or None is wanted")
