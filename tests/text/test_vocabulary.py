"""Families and ids from the files of a directory."""

import json

import pytest

from nllb_cli.errors import ModelError
from nllb_cli.text.vocabulary import read_tokenizer_files


def test_family_is_the_class_then_the_files(tmp_path):
    assert read_tokenizer_files(tmp_path).family == "nllb"
    (tmp_path / "vocab.json").write_text('{"<s>": 0}')
    assert read_tokenizer_files(tmp_path).family == "m2m100"
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizerFast"}')
    assert read_tokenizer_files(tmp_path).family == "nllb"
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer"})
    )
    with pytest.raises(ModelError, match="MarianTokenizer"):
        read_tokenizer_files(tmp_path)
