"""A wrong number in a committed notebook makes the tests fail: here nbval does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from farandole.runtime import processes
from tests.conftest import SESSION
from tests.notebooks.nbval_runs import ROOT, code_cells, is_checked, run_nbval, start_nbval

ORIGINAL = ROOT / "notebooks" / "01_sharded_data.ipynb"
PATIENCE_S = 120


def altered(text: str) -> str:
    """`text` with its last digit replaced by another one."""
    place = max(index for index, character in enumerate(text) if character.isdigit())
    return f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


def written(folder: Path, *cells: str) -> Path:
    """Return an executed notebook of these cells."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    for number, cell in enumerate(notebook.cells, 1):
        cell.execution_count = number
    path = folder / "written.ipynb"
    nbformat.write(notebook, path)
    return path


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / ORIGINAL.name
    path.write_bytes(ORIGINAL.read_bytes())
    return path


def test_the_unaltered_copy_passes(copy: Path) -> None:
    """It also prints the same in a kernel that starts as a user's does; all other tests fork theirs."""
    assert not run_nbval(copy, forked=False).failed


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
    """`!mpirun` would print the traceback and continue."""
    report = run_nbval(written(tmp_path, "%load_ext farandole", cell))

    assert report.failed == ["Cell 1"]
    assert says in report.output


def test_a_kernel_is_interrupted_and_ends_with_the_tests(tmp_path: Path) -> None:
    """Although it is forked, and so neither a child of the pytest that has started it nor in its process group."""
    cell = """
import os, time
from pathlib import Path
Path("new").write_text(str(os.getpid()))
try:
    Path("new").rename("kernel")  # from here on the test may interrupt
    time.sleep(600)
except KeyboardInterrupt:
    Path("interrupted").touch()
    time.sleep(600)
"""
    with start_nbval(written(tmp_path, cell), tmp_path) as nbval:
        until((tmp_path / "kernel").exists)
        kernel = psutil.Process(int((tmp_path / "kernel").read_text()))
        marked = processes.find(SESSION, os.environ[SESSION])
        (starter,) = [process.pid for process in marked if "ipykernel_launcher" in process.cmdline()]
        os.killpg(starter, signal.SIGINT)
        until((tmp_path / "interrupted").exists)
        nbval.kill()
    until(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
