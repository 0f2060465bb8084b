"""Which model: a directory, a model of the Hugging Face hub, or the bundled one. Without torch."""

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from nllb_cli.errors import ModelError, UsageError
from nllb_cli.model.config import read_config

BUNDLED_MODEL = Path(__file__).parent.parent / "demo_model"
VARIABLE = "NLLB_MODEL"
OWNER = "facebook"
EXAMPLE = f"{OWNER}/nllb-200-distilled-600M"
_OWNED = re.compile(r"(nllb-200-|m2m100_)[^/]*$")
"""Names of models that the hub has under their owner's name only."""
# Only what is needed comes down: a repository may hold the weights in five formats.
SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "tokenizer.json",
    "sentencepiece.bpe.model",
)
# Of the first kind that a repository has; single, or in numbered shards with an index.
WEIGHT_FILES = (
    (
        "model.safetensors",
        "model.safetensors.index.json",
        "model-?????-of-?????.safetensors",
    ),
    (
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "pytorch_model-?????-of-?????.bin",
    ),
)
BAR_DELAY_S = 1.0


def resolve_model(
    name: str | None, revision: str | None = None, *, with_weights: bool = True
) -> Path:
    """Return the directory of the model `name`, of `NLLB_MODEL`, or of the bundled one.

    A name that is no directory is a hub id, which is downloaded unless the hub's cache has it.
    Without weights, only configuration and tokeniser come: enough to check languages first.
    """
    name = name or os.environ.get(VARIABLE)
    path = _local_path(name) if name else BUNDLED_MODEL
    if name and path is None and _OWNED.match(name):
        raise ModelError(f"{name}: no such directory; did you mean the hub's {OWNER}/{name}?")
    if name and path is None and not _looks_like_path(name):
        return _from_hub(name, revision, with_weights)
    if revision is not None:
        raise UsageError(f"--revision {revision}: goes with a hub id such as {EXAMPLE} only")
    if path is None:
        raise ModelError(f"{name}: no such directory; --model takes one, or a hub id ({EXAMPLE})")
    if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        raise ModelError(f"{path}: you may not read it; change its permissions or its owner")
    return path


def _local_path(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # too long for a path, no such user, a closed folder above
        return None


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def _from_hub(name: str, revision: str | None, with_weights: bool) -> Path:
    path = _snapshot(name, revision, SMALL_FILES)
    # another architecture is refused before its gigabytes are on the way
    read_config(path)
    for patterns in WEIGHT_FILES if with_weights else ():
        # asked for together, all files are of one commit, even if the branch has moved meanwhile
        path = _snapshot(name, revision, (*SMALL_FILES, *patterns))
        if any(any(path.glob(pattern)) for pattern in patterns):
            break
    return path


def _snapshot(name: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    """Return the hub cache's folder with the files asked for, downloaded if need be."""
    # slow to import, and not needed for a directory
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import tqdm

    bars: list[tqdm] = []

    class VanishingBar(tqdm):
        """The hub's own bar: on a terminal only, not for what is there already, gone at its end."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.start_s = time.monotonic()
            kwargs |= {"disable": kwargs.get("disable") or not sys.stderr.isatty()}
            super().__init__(*args, leave=False, **kwargs)  # type: ignore[no-untyped-call]
            bars.append(self)

        def display(self, *args: Any, **kwargs: Any) -> None:
            if time.monotonic() - self.start_s > BAR_DELAY_S:
                super().display(*args, **kwargs)

    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=list(patterns), tqdm_class=VanishingBar
        )
    except Exception as error:  # the network below raises types of more than one library
        raise _hub_error(name, revision, error) from None
    finally:
        # the hub leaves them open, and they would move the cursor under whatever comes next
        for bar in bars:
            bar.close()
    return Path(folder)


def _hub_error(name: str, revision: str | None, error: Exception) -> ModelError:
    """Return the one line for what kept a model from coming."""
    from huggingface_hub import constants, errors

    neither = f"{name}: neither a directory nor a hub id"
    match error:
        case errors.HFValidationError():
            return ModelError(f"{neither} such as {EXAMPLE}")
        case errors.GatedRepoError():
            return ModelError(
                f"{name}: its owner asks for your consent; give it at "
                f"{constants.ENDPOINT}/{name}, then log in with `hf auth login` or HF_TOKEN"
            )
        case errors.RepositoryNotFoundError():
            return ModelError(
                f"{neither} that you may see; check the spelling, or log in with "
                "`hf auth login` or HF_TOKEN if it is private"
            )
        case errors.RevisionNotFoundError():
            return ModelError(f"{name}: the hub has no revision {revision}; check --revision")
        case errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return ModelError(
                f"{name}: no such directory, and not complete in the cache while HF_HUB_OFFLINE "
                "is set; unset it to download the model, or give a directory"
            )
        case errors.LocalEntryNotFoundError():
            return ModelError(
                f"{name}: no such directory, not complete in the cache, and the hub cannot be "
                f"reached ({_reason(error.__cause__ or error)}); try again with a network, or "
                "give a directory"
            )
        case OSError() if error.strerror:
            return ModelError(
                f"{name}: cannot be stored in {constants.HF_HUB_CACHE} ({error.strerror}); make "
                "room, or set HF_HOME to another folder"
            )
    return ModelError(
        f"{name}: the download failed ({_reason(error)}); try again, or give a directory"
    )


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]
