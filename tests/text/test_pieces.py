"""The SentencePiece model, from its file and from tokenizer.json."""

import shutil
from pathlib import Path

from nllb_cli.text.tokenizer import load_tokenizer

BUNDLED = Path(__file__).parents[2] / "nllb_cli" / "demo_model"


def test_tokenizer_json_alone_gives_the_same_pieces(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / name, tmp_path)
    texts = ["Guten Tag, wie geht es dir?", "日本語のテキスト", "a  b\u00a0c", "☃"]
    ours, rebuilt = load_tokenizer(BUNDLED), load_tokenizer(tmp_path)
    assert ours.encode(texts) == rebuilt.encode(texts)
    assert ours.languages == rebuilt.languages
