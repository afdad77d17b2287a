"""Every command in the documentation is valid: the real command line accepts its words and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cyclopts
import pytest

from farandole import cli, scenarios
from farandole.cli import compare, run
from farandole.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.py")),
    *sorted((ROOT / "labs").glob("*/*.md")),
]
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
PLACEHOLDER = re.compile(r"^(…|[A-Z][A-Z_]*)$")  # SCENARIO, NAME, R
# adding_a_method.md adds them; test_adding_a_method.py does too
NOT_IN_THE_PACKAGE = {"chain", "clipped_sgd", "natural", "round-robin", "star"}
BUILT_FOR_EACH = {"run": run.app, "compare": compare.command}  # from the words of the command


def commands(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Yield each of our commands, without the program's name, and whether it is in a line of a code block."""
    lines = [(True, line) for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    prose = FENCED.sub("", text).replace("\n# ", " ")  # a notebook's prose is in comments
    lines += [(False, words.replace("\n", " ")) for words in re.findall(r"`([^`]+)`", prose)]
    for in_block, line in lines:
        for command in re.split(r"&&|;", re.sub(r"\s#.*|[>|].*", "", line)):
            words = command.removeprefix("$ ").strip()
            if words.startswith("farandole "):
                yield in_block, shlex.split(words)[1:]
            elif module := re.search(r"python3? -m farandole(?:\.scenarios\.| )(.*)", words):
                ours = shlex.split(module[1])
                yield in_block, ["run", *ours] if "scenarios." in words else ours


@cache  # a command is read once, though several pages show it
def parse(*words: str) -> None:
    """Let the command line read `words`, and run nothing."""
    if words[0] == "supervise" and "--" in words:
        parse(*words[words.index("--") + 1 :])
        return
    app = cli.app
    if build := BUILT_FOR_EACH.get(words[0]):
        app = cyclopts.App()
        app.command(build(list(words)), name=words[0])
    app.parse_args(list(words), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_the_commands_of_a_page_are_ones(page: Path) -> None:
    for in_block, words in commands(page.read_text(encoding="utf-8")):
        if NOT_IN_THE_PACKAGE.intersection(words):
            continue
        if any(map(PLACEHOLDER.match, words)) and not in_block:
            words = words[:1] if words[0] in ("run", "supervise") else words
        try:
            parse(*words)
        except cyclopts.MissingArgumentError:
            assert not in_block, f"farandole {' '.join(words)}: lacks an argument"  # prose may name a command
        except (cyclopts.CycloptsError, UsageError) as error:
            pytest.fail(f"farandole {' '.join(words)}: {error}")


def test_the_pages_show_every_kind_of_command() -> None:
    """Otherwise the search has missed some."""
    shown = [words for page in PAGES for _, words in commands(page.read_text(encoding="utf-8"))]
    assert {words[0] for words in shown} >= {"doctor", "list", "tour", "run", "compare", "show", "draw", "simulate"}
    assert len({words[1] for words in shown if words[0] == "run" and len(words) > 1} & set(scenarios.names())) > 15


@pytest.mark.parametrize(
    "wrong",
    [
        "farandole run sync_sgd -n 4 --slow rank=3",
        "farandole run sync_sgd --collectve ring",
        "farandole draw rings -n 4",
        "farandole show",
        "farandole supervise -- run restart -n 4 --chekpoint-every 3",
        "mpirun -n 4 python -m farandole.scenarios.no_such_sgd",
    ],
)
def test_a_wrong_command_is_found(wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Try\n\n```\n{wrong}\n```\n")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_the_commands_of_a_page_are_ones(page)
