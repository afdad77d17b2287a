"""The notebooks of the labs run from top to bottom once the file is completed, and print what they show."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from farandole_tools.lab import labs, submissions
from tests.labs.labs_for_tests import FOLDERS

YOURS = "yours"
RANKS = 4  # of the cell that runs the learner's function


def text_of(cell: Any) -> str:
    """Return what a cell has printed, on a slow machine in several pieces, and the errors that it shows."""
    return "".join(output.get("text") or output.get("evalue", "") for output in cell.outputs)


def tags(cell: Any) -> list[str]:
    found: list[str] = cell.metadata.get("tags", [])
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_learners_notebook(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = labs.load(folder)
    started = submissions.start(lab, tmp_path).folder
    shutil.copy(folder / "reference.py", started / lab.file)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # as in `make lab`
    committed = nbformat.read(started / submissions.NOTEBOOK, as_version=4)
    check = next(cell for cell in committed.cells if cell.source == f"!farandole lab check {lab.number}")
    assert YOURS in tags(check)
    run = nbformat.read(started / submissions.NOTEBOOK, as_version=4)
    run.cells[committed.cells.index(check)].source = "!farandole lab list"  # other tests cover the check
    NotebookClient(run, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(started)}}).execute()

    shown = [(cell, again) for cell, again in zip(committed.cells, run.cells, strict=True) if cell.cell_type == "code"]
    for cell, again in shown:
        if YOURS in tags(cell):
            assert cell.outputs == [], "a cell that needs the learner's work is handed out unexecuted"
        else:
            assert cell.execution_count is not None
            assert text_of(cell) == text_of(again)
    own = [again for cell, again in shown if YOURS in tags(cell)]
    on_ranks = next((cell for cell in own if cell.source.startswith("%%mpi")), own[0])
    assert len(text_of(on_ranks).splitlines()) == RANKS
    assert lab.title in text_of(own[-1])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_notebook_and_its_text_agree(folder: Path) -> None:
    notebook, text = jupytext.read(folder / "lab.ipynb"), jupytext.read(folder / "lab.py")
    assert [(cell.cell_type, cell.source, tags(cell)) for cell in notebook.cells] == [
        (cell.cell_type, cell.source, tags(cell)) for cell in text.cells
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_notebook_names_no_place_of_this_machine(folder: Path) -> None:
    text = (folder / "lab.ipynb").read_text()
    assert str(labs.LABS.parent) not in text
    assert "/tmp" not in text
