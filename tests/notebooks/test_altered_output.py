"""A wrong number in a committed notebook turns the tests red: nbval is seen to fail."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tests.notebooks.nbval_runs import ROOT, code_cells, is_checked, run_nbval

ORIGINAL = ROOT / "notebooks" / "01_sharded_data.ipynb"


def altered(text: str) -> str:
    """`text` with its last digit replaced by another one."""
    place = max(index for index, character in enumerate(text) if character.isdigit())
    return f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / ORIGINAL.name
    path.write_bytes(ORIGINAL.read_bytes())
    return path


def test_the_unaltered_copy_passes(copy: Path) -> None:
    assert not run_nbval(copy).failed


def test_each_altered_output_is_found_and_no_other(copy: Path) -> None:
    """One in a cell of plain Python, one in a cell under ``%%mpi``."""
    notebook = nbformat.read(copy, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    checked = [number for number, cell in enumerate(cells) if is_checked(cell)]
    under_mpi = next(number for number in checked if cells[number].source.startswith("%%mpi"))
    plain = next(number for number in checked if not cells[number].source.startswith("%%mpi"))
    for number in (plain, under_mpi):
        output = cells[number].outputs[0]
        output.text = altered(output.text)
    nbformat.write(notebook, copy)

    report = run_nbval(copy)

    assert sorted(report.failed) == sorted(f"Cell {number}" for number in (plain, under_mpi))
    assert len(report.passed) == len(code_cells(copy)) - 2
    assert "Cell outputs differ" in report.output


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%mpi -n 2\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    raise ValueError('broken')", "broken"),
        ("%%mpi -n two\nprint('never printed')", "invalid int value: 'two'"),
        ("%%mpi -n 2\nprint('unfinished'", "'(' was never closed"),
    ],
    ids=["a rank raises", "a wrong argument", "not Python"],
)
def test_a_broken_cell_under_mpi_fails_though_its_output_is_not_checked(tmp_path: Path, cell: str, says: str) -> None:
    """`!mpirun` would print the traceback and go on as if nothing had happened."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell("%load_ext farandole"), v4.new_code_cell(cell)])
    for number, code in enumerate(notebook.cells, 1):
        code.execution_count = number
    path = tmp_path / "broken.ipynb"
    nbformat.write(notebook, path)

    report = run_nbval(path)

    assert report.failed == ["Cell 1"]
    assert says in report.output
