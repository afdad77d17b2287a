"""Running nbval on a notebook in a process of its own, and what it found."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_TIMEOUT_S = 240


@dataclass(frozen=True)
class Report:
    """What nbval said: names of the cells that passed, of those that did not, and its whole output."""

    passed: list[str]
    failed: list[str]
    output: str


def run_nbval(notebook: Path, timeout_s: float = 540) -> Report:
    """Execute `notebook`, and compare the outputs of its checked cells with the stored ones."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", str(notebook)]
        options = [f"--nbval-cell-timeout={CELL_TIMEOUT_S}", f"--junitxml={junit}", "-p", "no:cacheprovider"]
        ended = subprocess.run(
            [*command, *options, "--color=no"], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
        )
        assert junit.exists(), ended.stdout + ended.stderr
        cases = list(ElementTree.parse(junit).iter("testcase"))
    passed = [case.attrib["name"] for case in cases if len(case) == 0]
    failed = [case.attrib["name"] for case in cases if len(case)]  # failed, in error, or skipped
    return Report(passed, failed, ended.stdout)


def code_cells(notebook: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]


def is_checked(cell: nbformat.NotebookNode) -> bool:
    return "nbval-check-output" in cell.metadata.get("tags", []) or "NBVAL_CHECK_OUTPUT" in cell.source
