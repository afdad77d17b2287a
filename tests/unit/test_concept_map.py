"""The documentation is true: what it names exists, and everything that can be run is on the concept map."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import farandole
from farandole import methods as registry
from farandole.cost.methods import METHODS as COMPARED
from farandole.parameter_server.core.policies import POLICIES
from farandole.runtime.record import Summary
from farandole_tools.bench import methods

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "reference" / "farandole"
MAP = ROOT / "docs" / "concept_map.md"
HEADER = ["Concept", "Where", "Run it", "Proved by"]
CONCEPT = re.compile(r"^(?P<english>.+?) – (?P<term>.+?) \((?P<source>00[0-4].*)\)$")
NOTHING = "–"

# Rooms that a "not yet" may name: those of the plan, whether or not they exist yet.
ROOMS = {
    *(
        "data",
        "collectives",
        "compression",
        "data_parallel",
        "decentralised",
        "model_parallel",
        "parameter_server",
        "recovery",
        "cost",
    ),
    *("runtime", "models", "scenarios"),
}
KINDS = {
    "run": lambda name: PACKAGE / "scenarios" / f"{name}.py",
    "notebook": lambda name: ROOT / "notebooks" / f"{name}.ipynb",
    "lab": lambda name: ROOT / "labs" / name / "README.md",
    "slurm": lambda name: ROOT / "slurm" / name,
}


@dataclass(frozen=True)
class Row:
    term: str
    where: str
    run: str
    proved: str


def rows_of(text: str) -> list[Row]:
    """Return every row of the map's tables; a malformed line is an error."""
    rows: list[Row] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        cells = [cell.strip("| ") for cell in cells]
        if cells == HEADER or set(line) <= set("|-"):
            continue
        assert len(cells) == 4, f"not four cells: {line}"
        concept = CONCEPT.match(cells[0])
        assert concept, f"the first cell is not 'English – 中文 (documents)': {cells[0]}"
        rows.append(Row(concept["term"], *cells[1:]))
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def promised(cell: str) -> list[str]:
    """Return the rooms named by "not yet (…)"."""
    return [room for group in re.findall(r"not yet \(([^)]*)\)", cell) for room in names(group)]


def modules(cell: str) -> list[str]:
    return [name for name in names(re.sub(r"not yet \([^)]*\)", "", cell)) if "/" in name]


def located(name: str) -> Path:
    if name.startswith("farandole_tools/"):
        return PACKAGE.parent / name
    return ROOT / name if name.startswith("docs/") else PACKAGE / name


def faults_of(row: Row) -> list[str]:
    """Return what is untrue or incomplete in one row."""
    faults = [f"no such file: {name}" for name in modules(row.where) if not located(name).is_file()]
    faults += [
        f"'not yet' names no room of ours: {room}"
        for room in promised(row.where)
        if room.rstrip("/") not in ROOMS or not room.endswith("/")
    ]
    if not modules(row.where):
        if not promised(row.where):
            faults.append("neither a module nor 'not yet (`room/`)'")
        if row.run != NOTHING or row.proved != NOTHING:
            faults.append("nothing is there yet, so nothing can run or prove it")
    if any(not name.startswith("docs/") for name in modules(row.where)) and not names(row.proved):
        faults.append("a module without a test")
    for entry in [] if row.run == NOTHING else row.run.split(", "):
        kind, _, rest = entry.partition(" ")
        if entry.startswith("`farandole "):
            continue
        if kind not in KINDS or not re.fullmatch(r"`[\w.]+`", rest):
            faults.append(f"not 'run|notebook|lab|slurm `name`' or a farandole command: {entry}")
        elif not KINDS[kind](rest.strip("`")).is_file():
            faults.append(f"no such {kind}: {rest}")
    faults += [f"no such test: {name}" for name in names(row.proved) if not (ROOT / "tests" / name).is_file()]
    return faults


def the_map() -> list[Row]:
    return rows_of(MAP.read_text(encoding="utf-8"))


def test_everything_the_map_names_exists() -> None:
    rows_by_fault: dict[str, list[str]] = {}
    for row in the_map():
        for fault in faults_of(row):
            rows_by_fault.setdefault(fault, []).append(row.term)
    lines = [f"{fault} (in {', '.join(terms)})" for fault, terms in sorted(rows_by_fault.items())]
    assert not lines, "\n" + "\n".join(lines)


def test_each_chinese_term_stands_in_one_row() -> None:
    terms = [row.term for row in the_map()]
    assert len(terms) > 100
    assert [term for term, count in Counter(terms).items() if count > 1] == []
    chinese = re.compile(r"[\u4e00-\u9fff]")
    text = MAP.read_text(encoding="utf-8")
    assert [row.term for row in the_map() if chinese.search(row.where + row.run + row.proved)] == []
    # A longer term may contain a shorter one; the term itself, as a whole, is written once.
    whole = Counter(re.findall(r" – (.+?) \(00", text))
    assert [term for term in terms if whole[term] != 1] == []


def test_whatever_can_be_run_is_on_the_map() -> None:
    on_map = {name for row in the_map() for name in names(row.run)}
    scenarios = {path.stem for path in (PACKAGE / "scenarios").glob("*.py") if is_scenario(path)}
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    labs = {path.parent.name for path in (ROOT / "labs").glob("[0-9]*/README.md")}
    scripts = {path.name for path in (ROOT / "slurm").glob("*.sbatch")}
    assert all((scenarios, notebooks, labs, scripts))
    assert (scenarios | notebooks | labs | scripts) - on_map == set()


def is_scenario(path: Path) -> bool:
    return re.search(r"^def main\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


@pytest.mark.parametrize(
    "room",
    [
        "data",
        "collectives",
        "compression",
        "data_parallel",
        "decentralised",
        "model_parallel",
        "grid",
        "parameter_server",
        "federated",
        "recovery",
        "cost",
        "models",
        "own_loop",
    ],
)
def test_every_module_of_a_room_of_methods_is_on_the_map(room: str) -> None:
    on_map = {name for row in the_map() for name in modules(row.where)}
    public = (path for path in (PACKAGE / room).rglob("*.py") if not path.name.startswith("_"))
    assert {str(path.relative_to(PACKAGE)) for path in public} - on_map == set()


GOOD = Row("数据", "`runtime/record.py`", "–", "`unit/test_concept_map.py`")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (GOOD, None),
        (Row("x", "not yet (`recovery/`)", "–", "–"), None),
        (Row("x", "`no/such.py`", "–", GOOD.proved), "no such file: no/such.py"),
        (Row("x", "later", "–", "–"), "neither a module nor 'not yet (`room/`)'"),
        (
            Row("x", "not yet (`attic/`)", "–", "–"),
            "'not yet' names no room of ours: attic/",
        ),
        (
            Row("x", "not yet (`recovery/`)", "–", GOOD.proved),
            "nothing is there yet, so nothing can run or prove it",
        ),
        (Row("x", "`runtime/record.py`", "–", "–"), "a module without a test"),
        (
            Row("x", "`runtime/record.py`", "run `nothing`", GOOD.proved),
            "no such run: `nothing`",
        ),
        (
            Row("x", "`runtime/record.py`", "–", "`unit/test_nothing.py`"),
            "no such test: unit/test_nothing.py",
        ),
    ],
)
def test_an_untrue_row_is_found(row: Row, fault: str | None) -> None:
    assert faults_of(row) == ([] if fault is None else [fault])


PAGES = sorted(set((ROOT / "docs").glob("*.md")) - {MAP})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_pages_exist(page: Path) -> None:
    """Every `room/module.py` in the prose, relative to the package or to the repository's root."""
    named = set(re.findall(r"`((?:[\w.]+/)+\w+\.py)`", page.read_text(encoding="utf-8")))
    assert {name for name in named if not (located(name).is_file() or (ROOT / name).is_file())} == set()


def test_the_readmes_map_has_every_room_and_its_links_are_alive() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
    rooms = {str(path.parent.relative_to(ROOT)) for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - set(links) == set()


def test_the_records_fields_are_explained_in_order() -> None:
    """docs/design.md has one row for each field of a summary."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = page[page.index("| field | unit |") :].split("\n\n", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(Summary)]


@pytest.mark.parametrize("page", [MAP, *PAGES], ids=lambda page: page.name)
def test_errata_are_cited_by_numbers_that_exist(page: Path) -> None:
    headings = re.findall(r"^### (00\d\.\d+) ", (ROOT / "docs" / "errata.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings)) > 50
    cited = set(re.findall(r"(?<![\w.])00\d\.\d+(?![\w.]*\w)", page.read_text(encoding="utf-8")))
    assert cited - set(headings) == set()


WORDS = {"seven": 7, "eight": 8, "nine": 9, "fifteen": 15, "sixteen": 16, "twenty": 20}
COUNTS = [
    (("README.md", "docs/index.md", "docs/commands.md"), r"(\w+) ways side by side", len(registry.stops())),
    (("reference/farandole/cli/tour.py",), r"(\w+) ways", len(registry.stops())),
    (("docs/commands.md", "docs/index.md", "docs/methods.md", "reference/farandole_tools/bench/methods.py"),
     r"(\w+) ways(?: to train|\])", len(methods.measured())),
    (("docs/commands.md", "docs/cost.md", "reference/farandole/scenarios/sync_cost.py"),
     r"(\w+) methods, predicted", len(COMPARED)),
    (("docs/cost.md", "reference/farandole/cost/comparison.py"),
     r"(\w+) methods(?:, for| \|| by their names)", len(registry.simulated())),
    (("docs/design.md",), r"(\w+) of them stand in\s+`parameter_server/core/policies/`",
     len(POLICIES)),
]  # fmt: skip


@pytest.mark.parametrize(("pages", "words", "number"), COUNTS, ids=[words for _, words, _ in COUNTS])
def test_a_number_that_is_written_is_how_many_there_are(pages: tuple[str, ...], words: str, number: int) -> None:
    for page in pages:
        written = re.findall(words, (ROOT / page).read_text(encoding="utf-8"))
        numbers = [int(each) if each.isdigit() else WORDS.get(each.lower()) for each in written]
        assert number in numbers, f"{page} says {written}"
        assert {each for each in numbers if each is not None} <= {number}, f"{page} says {written}"


def test_the_page_of_results_has_a_row_for_each_method_that_is_measured() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    table = page[page.index("| method |") :].split("\n\n", 1)[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted(method.name for method in methods.measured())


def test_the_page_of_public_names_has_each_and_no_other() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto(?:class|function|exception):: farandole\.(\w+)$", page, re.MULTILINE)
    assert sorted(documented) == sorted(farandole.__all__)
