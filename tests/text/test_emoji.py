"""Emoji are found as wholes, and the parts put together are the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nllb_cli.text.emoji import cut_at_emoji

EMOJI = {
    "a face": "😆",
    "a skin tone": "👍🏽",
    "a family": "👨\u200d👩\u200d👧\u200d👦",
    "a flag": "🇫🇷",
    "a flag of tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a keycap": "3\ufe0f\u20e3",
    "a heart": "❤\ufe0f",
    "a heart as text": "❤",
    "a woman who runs": "🏃🏽\u200d♀\ufe0f",
    "a sign shown as emoji": "©\ufe0f",
}


@given(st.text(st.one_of(st.characters(), st.sampled_from("".join(EMOJI.values()) + " a1."))))
def test_the_parts_are_the_text(text):
    parts = cut_at_emoji(text)
    if parts is not None:
        assert "".join(parts) == text
        assert len(parts) % 2 == 1
        assert len(parts) > 1


@pytest.mark.parametrize("emoji", EMOJI.values(), ids=EMOJI)
def test_an_emoji_is_one_part(emoji):
    assert cut_at_emoji(f"Yes. {emoji} No.") == ["Yes.", f" {emoji} ", "No."]
    assert cut_at_emoji(emoji) == ["", emoji, ""]
    assert cut_at_emoji(f"{emoji}{emoji} {emoji}b") == ["", f"{emoji}{emoji} {emoji}", "b"]


@pytest.mark.parametrize(
    "text",
    ["plain", "© 2020, ®, ™", "1 2 # *", "5 € → 4 £", "日本 ㊙ 語", "नमस्ते", "e\u0301", "a\ufe0f"],
)
def test_what_is_no_emoji(text):
    assert cut_at_emoji(text) is None
