"""The README: its commands run, its tables are true, its set-up is what CI runs."""

import re

import pytest

from nllb_cli.errors import ExitCode
from nllb_cli.io.formats import _BY_SUFFIX
from tests.readme import (
    PATH,
    ROOT,
    blocks,
    commands,
    in_place,
    pages,
    parameters,
    renewed,
    run,
    without_figures,
)

TEXT = PATH.read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
RUN = [block for block in BLOCKS if block.is_run]


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_block_runs_and_prints_as_many_rows(block, tmp_path):
    printed, failed = run(block, in_place(tmp_path))
    assert without_figures(printed) == without_figures(block.output or "")
    lines = block.code.splitlines()
    shown = [line for line, following in zip(lines, lines[1:], strict=False) if "$?" in following]
    assert set(failed) <= set(shown), "fails without showing its exit code"


def test_without_figures_sees_a_lost_row_and_another_message():
    assert without_figures("a\n\nb\n") != without_figures("a\nb\n")
    assert without_figures("nllb: 3 rows in 2 s") == without_figures("nllb: 4 rows in 0.1 s")
    assert without_figures("nllb: no such file") != without_figures("nllb: 4 rows in 0.1 s")
    assert without_figures("3\n") != without_figures("1\n")


def test_all_blocks_are_found():
    assert len(BLOCKS) == TEXT.count("```sh\n") + TEXT.count("```python\n")
    assert len(RUN) >= 9
    assert [block.name for block in BLOCKS if block.not_run] == [
        block.name for block in BLOCKS if "facebook/" in block.code and block.language == "sh"
    ]


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.not_run], ids=lambda b: b.name)
def test_block_that_is_not_run_has_true_options(block):
    for line in block.code.splitlines():
        program, name, *words = line.split()
        assert program == "nllb"
        with commands()[name].make_context(name, words) as context:
            assert context.params["inputs"]


def test_made_parts_are_those_of_the_code():
    assert renewed(TEXT) == TEXT, "run `make readme`"


def test_arguments_and_options_are_those_of_each_command():
    for command, page in pages().items():
        part = TEXT.partition(f"\n`{command}`: ")[2].partition("\n`nllb")[0]
        for parameter in parameters(page):
            is_option = parameter.param_type_name == "option"
            for name in parameter.opts if is_option else [parameter.metavar]:
                assert re.search(rf"`{name}(\.\.\.)?`", part), f"{command} {name}"
    assert all(f"| `{name}` |" in TEXT for name in ("INPUT...", "SHARD...", "WORD", "--version"))


def test_exit_codes_are_those_of_the_code():
    table = TEXT.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE)
    assert sorted(int(code) for cell in codes for code in cell.split(",")) == sorted(ExitCode)


def test_suffixes_are_those_of_the_code():
    table = TEXT.partition("## Formats")[2].partition("\n- ")[0]
    for suffix in _BY_SUFFIX:
        assert f"`{suffix}`" in table


def test_ci_runs_the_readmes_line():
    (line,) = [block.code for block in BLOCKS if "[test]" in block.code]
    assert line in (ROOT / ".ci" / "run").read_text()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (ROOT / target).exists()


def test_model_card_names_licence_and_sources():
    card = (ROOT / "nllb_cli" / "demo_model" / "README.md").read_text(encoding="utf-8")
    for word in ("CC BY 2.0 FR", "tatoeba.org", "www.manythings.org/anki", "Tanaka corpus"):
        assert word in card
