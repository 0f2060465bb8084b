"""The README's parts that are made from the code, and its commands; `make readme` renews both.

What is between `<!-- NAME -->` and `<!-- end -->` comes from here: the options from what `--help`
prints, the file tree from the first line of each module. A `text` block behind a block of commands
is what they print.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from nllb_cli.cli import app

ROOT = Path(__file__).parent.parent
PATH = ROOT / "README.md"
_BLOCK = re.compile(
    r"""(?:^\*(Not\ run\ by\ the\ tests:\ [^\n]+)\*\n\n)?
    ^```(sh|python)\n(.*?)^```\n
    (?:\n```text\n(.*?)^```\n)?""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_MADE = re.compile(r"(<!-- (options|files) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of the README that a person may paste."""

    language: str
    code: str
    output: str | None
    """What it prints, if the README says so."""
    not_run: str | None
    """Why the tests do not run it."""

    @property
    def is_run(self) -> bool:
        """Whether the tests run it; what `make` does is not theirs to do."""
        return self.not_run is None and "make " not in self.code

    @property
    def name(self) -> str:
        """Its first line."""
        return self.code.partition("\n")[0][:60]


def blocks(text: str) -> list[Block]:
    """Return the blocks of commands and of Python."""
    return [_block(found) for found in _BLOCK.finditer(text)]


def _block(found: re.Match[str]) -> Block:
    return Block(language=found[2], code=found[3], output=found[4], not_run=found[1])


def in_place(folder: Path) -> Path:
    """Put what the commands need into a folder."""
    shutil.copytree(ROOT / "samples", folder / "samples")
    return folder


def run(block: Block, folder: Path) -> tuple[str, list[str]]:
    """Run a block; return what it prints on a terminal's two streams, and the lines that fail."""
    code = re.sub(r"^.*pip install \S+ && ", "", block.code)  # the first line of the set-up
    failures = folder / ".failures"
    failures.touch()
    trap = f"set -o pipefail; trap 'echo \"$BASH_COMMAND\" >> {failures}' ERR\n"
    command = (
        ["bash", "-c", trap + code] if block.language == "sh" else [sys.executable, "-c", code]
    )
    environment = {name: value for name, value in os.environ.items() if name != "NLLB_MODEL"}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=block.language == "python",
    )
    printed = done.stdout.replace(str(ROOT), "…")  # where this clone lies is nobody's business
    return printed, failures.read_text().splitlines()


def commands() -> dict[str, typer.core.TyperCommand]:
    """Return the commands of `nllb`."""
    return dict(typer.main.get_command(app).commands)


def pages() -> dict[str, typer.core.TyperCommand | typer.core.TyperGroup]:
    """Return what has a `--help`: `nllb` alone, and each command."""
    alone = typer.main.get_command(app)
    return {"nllb": alone, **{f"nllb {name}": command for name, command in commands().items()}}


def parameters(page: typer.core.TyperCommand | typer.core.TyperGroup) -> list[Any]:
    """Return arguments and options of our own; those for completion are the library's."""
    return [parameter for parameter in page.params if "completion" not in parameter.name]


def options() -> str:
    """Return the tables of all arguments and options, under the titles that `--help` gives them."""
    parts = []
    for name, page in pages().items():
        panels: dict[str, list[str]] = {"Arguments": [], "Options": []}
        for parameter in parameters(page):
            kind = f"{parameter.param_type_name.title()}s"
            panel = getattr(parameter, "rich_help_panel", None) or kind
            panels.setdefault(panel, []).append(_row(parameter))
        parts.append(f"`{name}`: {(page.help or '').splitlines()[0]}\n")
        for title, rows in panels.items():
            head = f"| {title} | | default |\n|---|---|---|\n"
            parts += [head + "".join(rows)] if rows else []
    return "\n".join(parts)


def _row(option: typer.core.TyperArgument | typer.core.TyperOption) -> str:
    if option.param_type_name == "argument":
        more = "..." if option.nargs == -1 else ""
        return f"| `{option.metavar}{more}` | {option.help} |  |\n"
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar}".replace("|", r"\|")
    words, without, default = option.help.partition("; without it, ")
    if without:
        words, default = f"{words}.", default.removesuffix(".")
    elif not option.is_flag and option.default not in (None, ""):
        default = f"`{option.default}`"
    return f"| {names}{value} | {words} | {default} |\n"


def files() -> str:
    """Return the tree of the package, each file with its one job."""
    lines = []
    for folder in [ROOT / "nllb_cli", *sorted((ROOT / "nllb_cli").glob("*/"))]:
        paths = [path for path in sorted(folder.glob("*.py")) if path.read_text().strip()]
        if paths:
            lines.append(f"{folder.relative_to(ROOT)}/")
        for path in paths:
            job = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
            lines.append(f"    {path.name:<22} {job.rstrip('.')}".rstrip())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def renewed(text: str) -> str:
    """Return the README with its made parts made anew."""
    make = {"options": options, "files": files}
    return _MADE.sub(lambda found: found[1] + make[found[2]]() + found[3], text)


def without_figures(printed: str) -> list[str]:
    """What must be equal: times differ, and a word may on another processor, but no row."""
    lines = []
    for line in printed.splitlines():
        if line.startswith(("nllb: ", "sample ", "estimate ")):
            line = re.sub(r"[0-9.,]+", "0", line)
        elif line.startswith("model "):
            line = "model"
        elif not line.isdecimal():  # an exit code
            line = "row" if line.strip() else ""
        lines.append(line)
    return lines


def _with_output(found: re.Match[str]) -> str:
    """Return a block with what it prints now, if that is more than other figures."""
    block = _block(found)
    if not block.is_run or block.output is None:
        return found[0]
    with tempfile.TemporaryDirectory() as folder:
        printed, _ = run(block, in_place(Path(folder)))
    if without_figures(printed) == without_figures(block.output):
        return found[0]
    return found[0].removesuffix(f"{block.output}```\n") + f"{printed}```\n"


if __name__ == "__main__":
    new = renewed(PATH.read_text(encoding="utf-8"))
    PATH.write_text(_BLOCK.sub(_with_output, new), encoding="utf-8")
