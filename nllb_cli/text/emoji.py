"""Cut a text at its emoji, which models drop or swap, together with what follows them.

What counts are the pictographs and dingbats of Unicode, flags, keycaps, and any sign that asks to
be shown as emoji (U+FE0F). Letters and digits never do, and neither do ©, ® and ™ by themselves.
"""

import re
from typing import Literal

Emoji = Literal["keep", "model"]
EMOJI: tuple[Emoji, ...] = ("keep", "model")

_PICTURE = (
    "[\u231a\u231b\u23cf\u23e9-\u23f3\u23f8-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55"
    "\U0001f000-\U0001faff]"
)
_KEYCAP = "[0-9#*]\ufe0f?\u20e3"
_SIGN = "[^\\s\\w]\ufe0f"  # such as ©️
_JOINED = "[\ufe0e\ufe0f\u200d\U000e0020-\U000e007f]*"
_RUN = re.compile(rf"\s*(?:(?:{_KEYCAP}|{_PICTURE}|{_SIGN}){_JOINED}\s*)+")


def cut_at_emoji(text: str) -> list[str] | None:
    """Return words, emoji, words, …, words, which put together are the text; None without emoji.

    Words may be empty; white space belongs to the emoji beside it.
    """
    if text.isascii():
        return None
    parts: list[str] = []
    end = 0
    for run in _RUN.finditer(text):
        parts += (text[end : run.start()], run.group())
        end = run.end()
    return [*parts, text[end:]] if parts else None
