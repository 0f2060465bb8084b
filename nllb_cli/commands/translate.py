"""`nllb translate`: check everything, then read, translate and write."""

from typing import TYPE_CHECKING, cast

from nllb_cli.commands import flags
from nllb_cli.errors import UsageError
from nllb_cli.options import DecodeOptions, EarlyStopping, EngineOptions, IoOptions, OnError

if TYPE_CHECKING:
    from nllb_cli.text.emoji import Emoji
    from nllb_cli.text.normalize import Normalize


def translate(
    inputs: flags.Inputs,
    src: flags.SourceLang = "",
    tgt: flags.TargetLangs = "",
    output: flags.Output = None,
    output_dir: flags.OutputDir = None,
    format: flags.Format = None,
    field: flags.Field = "text",
    output_field: flags.OutputField = None,
    src_field: flags.SourceField = None,
    tgt_field: flags.TargetField = None,
    status: flags.Status = False,
    status_field: flags.StatusField = None,
    on_error: flags.OnError = "fail",
    skip: flags.Skip = 0,
    limit: flags.Limit = None,
    shard: flags.Shard = None,
    model: flags.Model = None,
    revision: flags.Revision = None,
    device: flags.Device = "auto",
    dtype: flags.Dtype = "auto",
    gpu_memory: flags.GpuMemory = 0.9,
    max_batch_rows: flags.MaxBatchRows = None,
    beam: flags.Beam = 4,
    length_penalty: flags.LengthPenalty = 1.0,
    early_stopping: flags.EarlyStopping = "false",
    max_source_tokens: flags.MaxSourceTokens = None,
    max_target_tokens: flags.MaxTargetTokens = None,
    too_long: flags.TooLong = "error",
    normalize: flags.Normalize = "auto",
    emoji: flags.Emoji = "keep",
    overwrite: flags.Overwrite = False,
    resume: flags.Resume = False,
    record: flags.RecordFile = None,
    log_json: flags.LogJson = None,
    dry_run: flags.DryRun = False,
    quiet: flags.Quiet = False,
) -> int:
    """Translate files, one row out for each row in, in the same order.

    Lines, JSONL, Parquet, CSV and TSV go through; other fields and columns stay as they are.
    """
    if overwrite and resume:
        raise UsageError("--overwrite and --resume: choose one of them")
    status_field = status_field or ("status" if status else None)
    io = IoOptions(
        source_field=src_field,
        target_field=tgt_field,
        fields=tuple(name.strip() for name in field.split(",")),
        output_field=output_field,
        on_error=cast(OnError, on_error),
        status_field=status_field,
    )
    decode = DecodeOptions(beam, length_penalty, cast(EarlyStopping, early_stopping))
    engine = EngineOptions(device, dtype, gpu_memory, max_batch_rows)
    # what follows imports much, and --help must not wait for it
    from nllb_cli.commands.run import Choices, run
    from nllb_cli.slices import Slice, parse_shard
    from nllb_cli.text.segments import SplitRules, check_too_long

    choices = Choices(
        inputs=inputs,
        output=output,
        output_dir=output_dir,
        format=format,
        source_lang=src,
        target_langs=[name.strip() for name in tgt.split(",") if name.strip()],
        io=io,
        slice=Slice(skip, limit, parse_shard(shard)),
        model=model,
        revision=revision,
        engine=engine,
        decode=decode,
        max_source_tokens=max_source_tokens,
        text=SplitRules(
            max_target_tokens=max_target_tokens,
            too_long=check_too_long(too_long),
            normalize=cast("Normalize", normalize),
            emoji=cast("Emoji", emoji),
        ),
        mode="overwrite" if overwrite else "resume" if resume else "new",
        record=record,
        log_json=log_json,
        is_dry=dry_run,
        is_quiet=quiet,
    )
    return run(choices)
