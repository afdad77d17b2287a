"""An installation from a wheel, used outside any checkout: it includes labs, notebooks and batch scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is installed into, beside what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    # From a copy: the build leaves its own folder beside the sources.
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", *MATERIAL, "reference"):
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words = ["--no-compile", "--no-build-isolation", "--target", str(folder / "packages"), str(source)]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "packages"


MATERIAL = ("labs", "notebooks", "slurm")


# Several commands in one process: each would need half a second for its imports.
SEVERAL = """
import json, sys
import farandole, farandole.cli
print(farandole.__file__)
for words in json.loads(sys.argv[1]):
    try:
        farandole.cli.main(words)
    except SystemExit as end:
        if end.code:
            raise
"""


def python(installed: Path, folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(installed: Path, folder: Path, *words: str) -> str:
    return python(installed, folder, "-m", "farandole", *words)


def test_it_is_complete_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    copies = ["scripts", "my_scripts"], ["notebooks", "my_notebooks"]
    several = [["new", "task", "mine.py"], ["lab", "start", "1"], *copies, ["--help"]]
    said = python(installed, tmp_path, "-c", SEVERAL, json.dumps(several))
    assert said.startswith(str(installed))
    assert "tour" in said
    command(installed, tmp_path, "run", "sync_sgd", "-n", "2", "--task", "mine.py", "--steps", "3", "--out", "run")
    assert "error" in command(installed, tmp_path, "show", "run")
    assert "10 of 10 points" in command(installed, tmp_path, "lab", "check", "1", "--with", "reference")
    for what, example in (("scripts", "sync_sgd.sbatch"), ("notebooks", "00_tour.ipynb")):
        copied = {file.name for file in (tmp_path / f"my_{what}").iterdir()}
        assert example in copied
        assert len(copied) > 25


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    from farandole.errors import UsageError
    from farandole_tools import material

    (tmp_path / "mine.sbatch").write_text("mine")
    with pytest.raises(UsageError, match="holds something already: give a new or empty folder"):
        material.scripts(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        material.notebooks(Path("/proc/nowhere"))
