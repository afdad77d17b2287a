"""A page for each method, from the registry, the concept map, the docstrings, the drawings and the measured table.

Nothing is written twice. ``farandole.methods.METHODS`` names the concept and the file whose docstring has the formula,
the cost and the source. The rows of docs/concept_map.md that run the method have its notebooks, labs, batch scripts and
drawings. docs/methods.md has what was measured, and docs/method_runs.json a run of each (tools/method_runs.py). A
drawing is what ``farandole draw`` draws and prints.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from _ext import method_parts
from _ext.house import replace_folder
from _ext.plain_docstrings import to_rest
from farandole import scenarios
from farandole.methods import METHODS, Method

SLUG = re.compile(r"[^\w\- ]")
Draw = Callable[[str], tuple[str, str]]  # a command → the picture, as a page of docs/methods refers to it, and the text


@dataclass(frozen=True)
class Concept:
    """A row of the concept map.

    Attributes:
        section: the heading above it.
        name, about: as "Data parallel" and "数据并行 (000, 001)".
        where, run, proved: its other cells.
    """

    section: str
    name: str
    about: str
    where: str
    run: str
    proved: str

    def named(self, kind: str) -> list[str]:
        """Return the names after "run", "notebook", "lab" or "slurm"."""
        return re.findall(rf"\b{kind} `([^`]+)`", self.run)

    def drawings(self) -> list[str]:
        """Return its commands that draw."""
        return re.findall(r"`(farandole draw [^`]+)`", self.run)


def concepts(text: str) -> list[Concept]:
    """Return the rows of the concept map, of which `text` is the page."""
    rows, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and " – " in line:
            name, where, run, proved = (cell.strip("| ") for cell in line.split(" | "))
            rows.append(Concept(section, *name.split(" – ", 1), where, run, proved))
    return rows


def measured(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the head of the table in docs/methods.md, and its rows by name."""
    head, rule, *rows = text[text.index("| method |") :].split("\n\n", 1)[0].splitlines()
    return [head, rule], {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def pages(root: Path, draw: Draw) -> dict[str, str]:
    """Return the text of each method's page, and of the index, by file name.

    Args:
        root: of the repository.
        draw: carries out a `farandole draw` command.
    """
    known = concepts((root / "docs" / "concept_map.md").read_text(encoding="utf-8"))
    table = measured((root / "docs" / "methods.md").read_text(encoding="utf-8"))
    runs = json.loads((root / "docs" / "method_runs.json").read_text(encoding="utf-8"))
    texts = {
        f"{name}.md": "\n".join(page(name, method, known, table, runs.get(name), root, draw))
        for name, method in METHODS.items()
    }
    return texts | {"index.md": "\n".join(index())}


def page(
    name: str,
    method: Method,
    known: list[Concept],
    table: tuple[list[str], dict[str, str]],
    run: Mapping[str, str] | None,
    root: Path,
    draw: Draw,
) -> Iterator[str]:
    """Yield the lines of one method's page.

    Args:
        run: one that was recorded: its command, date, cores and processor, and what it printed.
    """
    title, about, run_by = parts(inspect.getdoc(scenarios.load(name)) or "")
    concept = next(each for each in known if each.name == method.concept)
    rows = [each for each in known if name in each.named("run")]
    yield f"# {title} (`{name}`)\n"
    yield rest(about)
    yield "| | |\n|---|---|"
    yield f"| concept | [{concept.name}](../concept_map.md#{slug(concept.section)}) – {concept.about} |"
    if method.aliases:
        yield f"| other names | {', '.join(f'`{alias}`' for alias in method.aliases)} |"
    for heading, kind, link in LINKS:
        if names := list(dict.fromkeys(each for row in rows for each in row.named(kind))):
            names.sort(key=lambda each: each not in concept.named(kind))  # those of the concept's own row first
            yield f"| {heading} | {', '.join(link(each) for each in names)} |"
    yield f"| room | `{method.room}/` |\n"
    yield f"## Run it\n\n```\n{run_by}\n```\n"
    yield f"All options: `farandole run {name} --help`.\n"
    if run:
        where = f"on {run['cores']} cores of {run['processor']} ({run['date']})"
        yield f"## A run\n\n`{run['command']}` printed, {where}:\n"
        yield f"```text\n{run['printed']}\n```\n"
    if method.code:
        text = ast.get_docstring(ast.parse((root / "reference" / "farandole" / method.code).read_text("utf-8"))) or ""
        yield f"## The method\n\nFrom the docstring of `{method.code}`:\n\n{rest(text.splitlines())}"
    if commands_to_draw := list(dict.fromkeys(each for row in rows for each in row.drawings())):
        yield "## Drawing\n"
        for command in commands_to_draw:
            picture, said = draw(command)
            yield f"`{command}` draws and prints:\n\n![{command}]({picture})\n\n```text\n{said.rstrip()}\n```\n"
    yield from method_parts.table(name)
    head, lines = table
    if shown := [lines[each.name] for each in method.measured if each.name in lines]:
        yield "## Measured\n\nSeconds until the training loss is 0.5, as on [all methods compared](../methods.md):\n"
        yield "\n".join([*head, *shown]) + "\n"
    yield "## Simulated\n"
    if method.simulated:
        yield ", ".join(f"`farandole simulate {each}`" for each in method.simulated) + "\n"
    else:
        yield f"`farandole simulate` does not have it: {method.why_not_simulated}.\n"
    yield f"## Code and tests\n\n- Where: {concept.where}\n- Proved by: {concept.proved}\n"


LINKS: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("notebooks", "notebook", lambda name: f"[{name}](../notebooks/{name}.ipynb)"),
    ("labs", "lab", lambda name: f"[{name}](../labs/{name}.md)"),
    ("batch scripts", "slurm", lambda name: f"{{download}}`{name} <../../slurm/{name}>`"),
)


def index() -> Iterator[str]:
    """Yield the lines of the page that lists all methods, by room."""
    yield "# A page for each method\n"
    yield "Each page has what the method does, its formula, cost and source, how to run it, and where to learn it."
    yield "How fast they are beside each other is on [43 ways to train, compared](../methods.md).\n"
    for room in dict.fromkeys(method.room for method in METHODS.values()):
        yield f"## {room.replace('_', ' ').capitalize()}\n\n| method | what it does |\n|---|---|"
        for name, method in METHODS.items():
            if method.room == room:
                yield f"| [{name}]({name}.md) | {scenarios.title(scenarios.load(name))} |"
        yield ""
    yield "```{toctree}\n:hidden:\n"
    yield from (f"{name} <{name}>" for name in METHODS)  # the name alone in the table of contents
    yield "```"


def parts(docstring: str) -> tuple[str, list[str], str]:
    """Return a scenario's name in words, the lines that explain it, and its commands."""
    first, *lines = docstring.splitlines()
    title, _, sentence = first.partition(": ")
    commands = [line for line in lines if line.startswith("    ")]
    about = [line for line in lines if line not in commands]
    if sentence:
        about = [sentence[0].upper() + sentence[1:], *about]
    return title.rstrip("."), about, inspect.cleandoc("\n".join(commands))


def commands(name: str) -> list[str]:
    """Return the commands on a method's page."""
    return parts(inspect.getdoc(scenarios.load(name)) or "")[2].splitlines()


def rest(lines: list[str]) -> str:
    """Return some lines of a docstring as a block of Markdown that is read as reStructuredText."""
    text = "\n".join(to_rest(lines)).strip("\n")
    return f"````{{eval-rst}}\n{text}\n````\n" if text else ""


def slug(heading: str) -> str:
    """Return the anchor that myst gives to a heading."""
    return SLUG.sub("", heading.lower()).replace(" ", "-")


def drawn_in(folder: Path, newest: float) -> Draw:
    """Return a function that draws into `folder`; what is younger than `newest` is kept.

    Args:
        newest: the time of change of the youngest source file.
    """

    def draw(command: str) -> tuple[str, str]:
        words = shlex.split(command)[2:]
        picture = folder / (re.sub(r"\W+", "-", " ".join(words)) + ".png")
        text = picture.with_suffix(".txt")
        if not (picture.exists() and text.exists()) or text.stat().st_mtime < newest:
            from farandole.cli.draw import app

            folder.mkdir(parents=True, exist_ok=True)
            said = io.StringIO()
            with redirect_stdout(said):
                function, bound, _ = app.parse_args([*words, "--out", str(picture)])
                function(*bound.args, **bound.kwargs)
            text.write_text(re.sub(r"the picture: .*\n", "", said.getvalue()), encoding="utf-8")
        return f"../{folder.relative_to(folder.parents[1])}/{picture.name}", text.read_text(encoding="utf-8")

    return draw


def write_method_pages(root: Path, target: Path) -> None:
    """Write the pages to `target`, a folder of docs/, and their pictures below docs/_build."""
    sources = (root / "reference" / "farandole").rglob("*.py")
    newest = max(path.stat().st_mtime for path in sources)
    replace_folder(target, pages(root, drawn_in(target.parent / "_build" / "drawings", newest)))
