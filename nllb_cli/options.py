"""What a person may choose about rows, search and engine, with defaults and checks."""

from dataclasses import dataclass
from typing import Literal

from nllb_cli.errors import UsageError

EarlyStopping = Literal["false", "true", "never"]
OnError = Literal["fail", "keep"]
ON_ERROR: tuple[OnError, ...] = ("fail", "keep")
DTYPES = ("auto", "float32", "bfloat16", "float16")
MAX_BEAM_SIZE = 32
BLOCK_ROWS = 4096
"""Repeated rows are looked for within aligned blocks of this many rows of an input."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How the best hypothesis is searched for."""

    beam_size: int = 4
    """Beams a segment; 1 is greedy."""
    length_penalty: float = 1.0
    """Exponent alpha of score = log_prob / length^alpha (as CTranslate2, HF and fairseq)."""
    early_stopping: EarlyStopping = "false"
    """When a segment's search is over, as HF's `early_stopping` of the same name."""

    def __post_init__(self) -> None:
        if not 1 <= self.beam_size <= MAX_BEAM_SIZE:
            raise UsageError(f"--beam {self.beam_size}: choose 1 (greedy) to {MAX_BEAM_SIZE}")
        if self.early_stopping not in ("false", "true", "never"):
            raise UsageError(f"--early-stopping {self.early_stopping}: choose false, true or never")
        if not -10.0 <= self.length_penalty <= 10.0:
            raise UsageError(f"--length-penalty {self.length_penalty}: choose -10 to 10")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where the model runs and how much memory it may take."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N; auto is the first GPU, else the CPU.

    Several with commas, or all (GPUs), are a process each.
    """
    dtype: str = "auto"
    """auto, float32, bfloat16 or float16; auto is bfloat16 on a GPU and float32 on a CPU."""
    gpu_memory: float = 0.9
    """Share of the free device memory that the engine may take."""
    max_batch_rows: int | None = None
    """At most this many segments are decoded together (None: what memory allows)."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"--dtype {self.dtype}: choose auto, float32, bfloat16 or float16")
        if not 0.05 <= self.gpu_memory <= 1.0:
            raise UsageError(f"--gpu-memory {self.gpu_memory}: choose a share from 0.05 to 1.0")
        if self.max_batch_rows is not None and self.max_batch_rows < 1:
            raise UsageError(f"--max-batch-rows {self.max_batch_rows}: choose 1 or more")


@dataclass(frozen=True, slots=True)
class IoOptions:
    """Which part of a row is translated, and how the translation is put beside it."""

    source_lang: str = ""
    target_langs: tuple[str, ...] = ()
    source_field: str | None = None
    """Field that holds a row's own source language; null or absent means `source_lang`."""
    target_field: str | None = None
    """Field that holds a row's own target language; null or absent means `target_langs`."""
    fields: tuple[str, ...] = ("text",)
    """Fields or columns to translate; lines have none of them."""
    output_field: str | None = None
    """Where translations go, `{field}` and `{tgt}` are filled in; None: see `io/fields.py`."""
    on_error: OnError = "fail"
    """At a bad row: stop (fail), or give it an empty translation and an error text (keep)."""
    status_field: str | None = None
    """Field for a row's status; for lines any name asks for a side file NAME.status."""
    quotes: bool = True
    """Whether CSV and TSV use double quotes; if not, a quote is a letter like others."""

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise UsageError(f"--on-error {self.on_error}: choose fail or keep")
        if not self.fields or not all(self.fields):
            raise UsageError("--field: name at least one field, and none of them empty")
        if len(set(self.fields)) < len(self.fields):
            raise UsageError(f"--field {','.join(self.fields)}: a field is named twice")
        if len(set(self.target_langs)) < len(self.target_langs):
            raise UsageError(f"--tgt {','.join(self.target_langs)}: a language is named twice")
        if self.target_field and len(self.target_langs) > 1:
            raise UsageError("--tgt-field: at most one --tgt, for rows that name none")


def default_target_limit(num_source_pieces: int) -> int:
    """A row's own output limit: twice its source pieces plus 50, at most 512 tokens.

    Counts what HF's `max_new_tokens` counts: the language token and `</s>` are included.
    """
    return min(2 * num_source_pieces + 50, 512)
