"""The committed notebooks run from top to bottom, and print what they say they print.

Every cell is executed again and must not raise; the outputs of cells tagged ``nbval-check-output``
must be the committed ones. These hold facts (sums, bytes, equality), never times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import jupytext
import nbformat
import pytest

from tests.notebooks.nbval_runs import NOTEBOOKS, ROOT, code_cells, is_checked, run_nbval

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)

# Ways to hide an error from nbval.
HIDING = re.compile(r"nbval[-_](ignore[-_]output|skip|raises)|pytest_validate_ignore|raises-exception", re.I)
# Ways to show source that are not `print(inspect.getsource(…))`.
OTHER_WAYS_TO_PRINT_CODE = re.compile(
    r"(?<!print\(inspect\.)getsource|__file__|print\(source|\?\?|%(pycat|psource|loadpy|load\s)|\.py\W+read_(text|bytes)"
)
# A path from the root, or one of another system; "2(P-1)/P n" and "a/b" are none.
ABSOLUTE_PATH = re.compile(r"(?<![\w.)\]}>*/:-])/[A-Za-z][\w.-]*/[\w.-]+|[A-Z]:\\\w|\bfarandole-\w{8}\b")


def texts(cell: nbformat.NotebookNode) -> Iterator[str]:
    """Yield everything that a cell has printed or shown as text."""
    for output in cell.outputs:
        yield output.get("text", "")
        for kind, content in output.get("data", {}).items():
            if kind.startswith("text/"):
                yield content


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS][:4] == [
        "00_tour",
        "01_sharded_data",
        "02_ring_all_reduce",
        "03_synchronous_sgd",
    ]


@each_notebook
def test_it_runs_and_prints_what_is_committed(notebook: Path) -> None:
    before = set(notebook.parent.rglob("*"))
    report = run_nbval(notebook)
    assert not report.failed, report.output
    assert len(report.passed) == len(code_cells(notebook)), "a cell was left out"
    after = {path for path in notebook.parent.rglob("*") if ".ipynb_checkpoints" not in path.parts}
    assert after <= before, "the notebook leaves something in the tree"


@each_notebook
def test_it_is_committed_executed(notebook: Path) -> None:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    # In order and without a gap: executed once, from top to bottom. nbval does not compare null ones.
    assert counts == list(range(1, len(counts) + 1))
    for cell in code_cells(notebook):
        assert not [output for output in cell.outputs if output.output_type == "error"], cell.source


@each_notebook
def test_enough_of_it_is_checked(notebook: Path) -> None:
    checked = [cell for cell in code_cells(notebook) if is_checked(cell)]
    assert len(checked) >= 4
    for cell in checked:
        assert any(text.strip() for text in texts(cell)), f"checked, but prints nothing:\n{cell.source}"


@each_notebook
def test_nothing_hides_a_wrong_output(notebook: Path) -> None:
    for cell in code_cells(notebook):
        assert not HIDING.search(cell.source), cell.source
        assert not HIDING.search(" ".join(cell.metadata.get("tags", []))), cell.source
    assert not set(nbformat.read(notebook, as_version=4).metadata) & {"celltoolbar", "widgets"}


@each_notebook
def test_outputs_name_no_path_of_the_machine_they_were_made_on(notebook: Path) -> None:
    for cell in code_cells(notebook):
        for text in texts(cell):
            assert not ABSOLUTE_PATH.search(text), ABSOLUTE_PATH.search(text)


@pytest.mark.parametrize("text", ["see /tmp/x1/run", "File /home/me/cell.py", "at C:\\x", "in farandole-ab12cd34"])
def test_a_path_would_be_found(text: str) -> None:
    assert ABSOLUTE_PATH.search(text)


@each_notebook
def test_it_stays_small(notebook: Path) -> None:
    assert notebook.stat().st_size < 1_000_000


@each_notebook
def test_it_has_pictures(notebook: Path) -> None:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@each_notebook
def test_its_pair_says_the_same(notebook: Path) -> None:
    """The .py file beside it, which shows changes in a review, has the same cells."""
    script = notebook.with_suffix(".py")
    pair = [jupytext.read(script), nbformat.read(notebook, as_version=4)]
    by_script, by_notebook = (
        [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in half.cells] for half in pair
    )
    assert by_script == by_notebook
    for half in pair:
        assert half.metadata.jupytext.formats == "ipynb,py:percent"
        assert half.metadata.kernelspec.name == "python3"


def test_code_that_is_printed_is_still_the_code() -> None:
    """Source that a cell shows is the project's: each line and its successor are consecutive lines of some module."""
    in_modules = set()
    for module in (ROOT / "reference").rglob("*.py"):
        in_modules |= set(pairwise([*module.read_text(encoding="utf-8").splitlines(), ""]))
    printed = [
        (notebook.stem, pair)
        for notebook in NOTEBOOKS
        for cell in code_cells(notebook)
        if "print(inspect.getsource(" in cell.source
        for text in texts(cell)
        for pair in pairwise([*text.splitlines(), ""])
        if pair[0]
    ]
    assert len(printed) > 100
    others = [
        path.stem for path in NOTEBOOKS for cell in code_cells(path) if OTHER_WAYS_TO_PRINT_CODE.search(cell.source)
    ]
    assert not others, "print(inspect.getsource(…)) is what this test looks at"
    assert [(name, pair) for name, pair in printed if pair not in in_modules] == []


@pytest.mark.parametrize(
    "source",
    [
        "print(Path(farandole.__file__).read_text())",
        'print((folder / "ring.py").read_text())',
        "text = inspect.getsource(ring)",
        "ring.all_reduce??",
        "%pycat ring.py",
    ],
)
def test_another_way_to_print_code_would_be_found(source: str) -> None:
    assert OTHER_WAYS_TO_PRINT_CODE.search(source)


def test_every_script_has_its_notebook() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.py")} == {path.stem for path in NOTEBOOKS}
