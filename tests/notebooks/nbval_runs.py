"""Run nbval on a notebook in a separate process, and return its findings.

pytest with nbval, and a kernel that imports IPython, matplotlib and torch, take 3 seconds of processor time before they
do anything. Forked from a process that has imported all this, they take 0.4 (`forked_program`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import pytest

from farandole_tools.forked_ranks import fork_server
from tests.conftest import SESSION
from tests.notebooks import forked_program

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_TIMEOUT_S = 240
KERNEL = "forked"
REPORT = "report.xml"
# What nbval, a kernel and nearly every notebook import. Not the inline backend itself: its import connects it to the
# kernel's shell.
IMPORTED = (
    *("_pytest.junitxml", "nbval.plugin", "jupyter_client.manager"),
    *("ipykernel.ipkernel", "ipykernel.kernelapp", "IPython.core.pylabtools", "IPython.display"),
    *("matplotlib.backends.backend_agg", "matplotlib.pyplot"),
)
# matplotlib reads this variable when it is imported. A kernel sets it before, if it is not set.
BACKEND = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


@dataclass(frozen=True)
class Report:
    """The result of nbval: names of the cells that passed, of those that did not, and its whole output."""

    passed: list[str]
    failed: list[str]
    output: str


@cache
def notebook_server() -> str:
    """Start the fork server of notebooks, which ends with this process, and return its address ("": there is none).

    The workers of pytest-xdist share the one that `conftest` has started. It starts before that of the ranks: then its
    address stays in the environment, and it forks ranks, too, which takes no longer.
    """
    if forked_program.SERVER in os.environ:
        return os.environ[forked_program.SERVER]
    with pytest.MonkeyPatch.context() as environment:
        for name in (fork_server.ADDRESS, SESSION):  # started anew, and kept until the last test has ended
            environment.delenv(name, raising=False)
        for name, value in BACKEND.items():
            environment.setenv(name, value)
        fork_server.start(*IMPORTED)
        return os.environ.get(fork_server.ADDRESS, "")


def start_nbval(notebook: Path, folder: Path, forked: bool = True) -> subprocess.Popen[str]:
    """Start to execute `notebook`, and to compare the outputs of its checked cells with the stored ones.

    Args:
        folder: gets the report, `REPORT`.
        forked: false: pytest and the kernel start as they do for a user, each in a new Python.
    """
    options = ["--nbval-lax", f"--nbval-cell-timeout={CELL_TIMEOUT_S}", f"--junitxml={folder / REPORT}", "--color=no"]
    options += ["--disable-plugin-autoload", "-p", "nbval.plugin", "-p", "no:cacheprovider"]
    environment = dict(os.environ)
    if forked:
        program = [sys.executable, "-P", forked_program.__file__]
        words = [*program, "ipykernel_launcher", "-f", "{connection_file}"]
        specification = folder / "kernels" / KERNEL / "kernel.json"
        specification.parent.mkdir(parents=True)
        specification.write_text(json.dumps({"argv": words, "display_name": KERNEL, "language": "python"}))
        environment |= {"JUPYTER_PATH": str(folder), forked_program.SERVER: notebook_server()}
        options += [f"--nbval-kernel-name={KERNEL}"]
    else:
        program = [sys.executable, "-m"]
        options += ["--nbval-current-env"]
    pipe = subprocess.PIPE
    command = [*program, "pytest", *options, str(notebook)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def run_nbval(notebook: Path, timeout_s: float = 540, forked: bool = True) -> Report:
    """Execute and compare as `start_nbval`, to the end; a process that takes longer than `timeout_s` is killed."""
    with tempfile.TemporaryDirectory() as folder:
        with start_nbval(notebook, Path(folder), forked) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        junit = Path(folder) / REPORT
        assert junit.exists(), stdout + stderr
        cases = list(ElementTree.parse(junit).iter("testcase"))
    passed = [case.attrib["name"] for case in cases if len(case) == 0]
    failed = [case.attrib["name"] for case in cases if len(case)]  # failed, in error, or skipped
    return Report(passed, failed, stdout)


def code_cells(notebook: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]


def is_checked(cell: nbformat.NotebookNode) -> bool:
    return "nbval-check-output" in cell.metadata.get("tags", []) or "NBVAL_CHECK_OUTPUT" in cell.source
