"""Translate a corpus with NLLB-200 or M2M-100, one row in, one row out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nllb_cli.pipeline import Translator

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the library door on first use, so that `nllb --help` never waits for torch."""
    if name == "Translator":
        from nllb_cli.pipeline import Translator

        return Translator
    raise AttributeError(f"module 'nllb_cli' has no attribute {name!r}")
