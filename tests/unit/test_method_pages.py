"""Every method has its page in the documentation, with its cost and its commands, and every link on a page works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from farandole.compression.table import COMPRESSORS
from farandole.methods import METHODS, Measured, Method
from farandole.model_parallel.schedules import SCHEDULES
from farandole.parameter_server.core.policies import POLICIES

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _ext import method_pages  # noqa: E402

DRAWN: list[str] = []


def drawn(command: str) -> tuple[str, str]:
    """Draw nothing, and record what would be drawn."""
    DRAWN.append(command)
    return "../images/ring.gif", "6 rounds"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return method_pages.pages(ROOT, drawn)


def source(link: str) -> Path:
    """Return the repository's file from which the site builds the target of a link in docs/methods."""
    name = Path(link).stem
    if link.startswith("../notebooks/"):
        return ROOT / "notebooks" / Path(link).name
    if link.startswith("../labs/"):
        return ROOT / "labs" / name / "README.md"
    return (ROOT / "docs" / "methods" / link).resolve()


def dead(pages: dict[str, str], name: str) -> list[str]:
    """Return the broken links and pictures of a page."""
    links = re.findall(r"\]\(([^)]+)\)", pages[name]) + re.findall(r"\{download\}`[^<`]+ <([^>]+)>`", pages[name])
    found = []
    for link in links:
        file, _, anchor = link.partition("#")
        alive = file in pages or source(file).is_file()
        if not alive or (anchor and anchor not in anchors(source(file))):
            found.append(link)
    return found


def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#{1,3} (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {method_pages.slug(heading) for heading in headings}


def test_each_method_has_a_page_that_the_index_lists(pages: dict[str, str]) -> None:
    assert set(pages) == {f"{name}.md" for name in METHODS} | {"index.md"}
    assert all(f"[{name}]({name}.md)" in pages["index.md"] for name in METHODS)
    assert re.findall(r"^\w+ <(\w+)>$", pages["index.md"], re.MULTILINE) == list(METHODS)


def test_every_link_is_alive(pages: dict[str, str]) -> None:
    assert {name: links for name in pages if (links := dead(pages, name))} == {}


def test_a_dead_link_is_found(pages: dict[str, str]) -> None:
    bad = {"a.md": "[a](../notebooks/99_no.ipynb) [b](b.md) [c](../concept_map.md#no) {download}`x <../../slurm/x>`"}
    assert len(dead(bad | pages, "a.md")) == 4


@pytest.mark.parametrize("name", METHODS)
def test_a_page_shows_a_run_of_its_first_command(pages: dict[str, str], name: str) -> None:
    command = method_pages.commands(name)[0]
    run = pages[f"{name}.md"].partition("## A run\n")[2].partition("\n## ")[0]
    assert f"`{command}` printed" in run, f"python tools/method_runs.py {name}"
    assert "│" in run


@pytest.mark.parametrize("name", METHODS)
def test_a_page_says_what_it_is_how_it_runs_and_what_it_costs(pages: dict[str, str], name: str) -> None:
    page = pages[f"{name}.md"]
    assert f"\nfarandole run {name} " in page
    assert f"{name}.sbatch" in page
    assert re.search(r"\bCost\b", page), f"the docstring of {METHODS[name].code} has no cost"
    rows = [line for line in page.splitlines() if line.startswith("| ") and "accuracy" not in line]
    assert all(any(row.startswith(f"| {each.name} |") for row in rows) for each in METHODS[name].measured)


def test_the_file_of_a_method_is_on_the_concept_map() -> None:
    text = (ROOT / "docs" / "concept_map.md").read_text(encoding="utf-8")
    assert [method.code for method in METHODS.values() if f"`{method.code}`" not in text] == []


def test_pages_show_the_drawings_of_the_concept_map(pages: dict[str, str]) -> None:
    """Those of the rows that run the method, once each."""
    assert {"farandole draw ring -n 4", "farandole draw 1f1b --stages 4 --micro-batches 8"} <= set(DRAWN)
    assert pages["pipeline.md"].count("![farandole draw 1f1b") == 1
    assert "6 rounds" in pages["sync_sgd.md"]


def test_a_drawing_is_kept_until_the_source_changes(tmp_path: Path) -> None:
    folder = tmp_path / "_build" / "drawings"
    picture, said = method_pages.drawn_in(folder, newest=0.0)("farandole draw ring -n 2")
    assert "seconds for a vector of n bytes: 2 α + nβ + 1/2 nγ" in said
    assert "the picture" not in said
    assert picture == "../_build/drawings/ring-n-2.png"
    file = folder / "ring-n-2.png"
    file.write_bytes(b"kept")
    method_pages.drawn_in(folder, newest=0.0)("farandole draw ring -n 2")
    assert file.read_bytes() == b"kept"
    method_pages.drawn_in(folder, newest=1e12)("farandole draw ring -n 2")
    assert file.read_bytes() != b"kept"


def test_a_new_row_has_a_page_before_it_names_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Method(
        "data_parallel",
        "Data parallel",
        module="farandole.scenarios.sync_sgd",
        measured=(Measured("ring"), Measured("new")),
    )
    monkeypatch.setitem(METHODS, "new_sgd", row)
    page = method_pages.pages(ROOT, drawn)["new_sgd.md"]
    assert page.startswith("# Synchronous data-parallel SGD over our own all-reduce (`new_sgd`)\n")
    assert "| ring | " in page


def test_the_parts_of_a_method_are_those_of_its_table_with_counted_costs(pages: dict[str, str]) -> None:
    assert "| `ring` | All-reduce" in pages["sync_sgd.md"]
    assert re.search(r"\| `ring` \| .+ \| 6 α \+ 3/2 nβ \+ 3/4 nγ \|", pages["sync_sgd.md"])
    assert re.search(r"\| `1f1b` \| .+ \| 27\.3% \| 4 \|", pages["pipeline.md"])  # (p − 1)/(m + p − 1), and p
    for page, table in (("parameter_server", POLICIES), ("compressed_sgd", COMPRESSORS), ("pipeline", SCHEDULES)):
        assert all(f"\n| `{name}` | " in pages[f"{page}.md"] for name in table if name != "none")
