"""`nllb langs`: the languages of a model."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from nllb_cli.commands import flags
from nllb_cli.errors import UsageError

Word = Annotated[
    str | None,
    typer.Argument(metavar="WORD", help="Show only what has it in code, name or script."),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")]


def langs(
    word: Word = None,
    model: flags.Model = None,
    revision: flags.Revision = None,
    as_json: Json = False,
) -> None:
    """List the languages that a model knows."""
    from nllb_cli.languages import describe
    from nllb_cli.pipeline import Translator

    translator = Translator(model, revision=revision)
    found = [
        language
        for language in describe(translator.tokenizer.languages)
        if word is None
        or any(
            word.lower() in text.lower() for text in (language.code, language.name, language.script)
        )
    ]
    if word is not None and not found:
        raise UsageError(f"no language of this model has {word[:40]!r} in code, name or script")
    if as_json:
        typer.echo(json.dumps([asdict(language) for language in found], ensure_ascii=False))
        return
    for note in translator.notes:
        typer.echo(f"nllb: {note}", err=True)
    width = max([len(language.name) for language in found], default=0)
    for language in found:
        typer.echo(f"{language.code:<10} {language.name:<{width}} {language.script}")
