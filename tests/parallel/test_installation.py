"""An installation from a wheel, used outside any checkout: it includes labs, notebooks and batch scripts."""

from __future__ import annotations

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
    words = ["--no-build-isolation", "--target", str(folder / "packages"), str(source)]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "packages"


MATERIAL = ("labs", "notebooks", "slurm")


def command(installed: Path, folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-m", "farandole", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_complete_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    found = [sys.executable, "-c", "import farandole; print(farandole.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    assert str(installed) in subprocess.run(
        found, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    command(installed, tmp_path, "new", "task", "mine.py")
    command(installed, tmp_path, "run", "sync_sgd", "-n", "2", "--task", "mine.py", "--steps", "3", "--out", "run")
    assert "error" in command(installed, tmp_path, "show", "run")
    command(installed, tmp_path, "lab", "start", "1")
    assert "10 of 10 points" in command(installed, tmp_path, "lab", "check", "1", "--with", "reference")
    for what, example in (("scripts", "sync_sgd.sbatch"), ("notebooks", "00_tour.ipynb")):
        command(installed, tmp_path, what, f"my_{what}")
        copied = {file.name for file in (tmp_path / f"my_{what}").iterdir()}
        assert example in copied
        assert len(copied) > 25
    assert "tour" in command(installed, tmp_path, "--help")


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    from farandole.errors import UsageError
    from farandole_tools import material

    (tmp_path / "mine.sbatch").write_text("mine")
    with pytest.raises(UsageError, match="holds something already: give a new or empty folder"):
        material.scripts(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        material.notebooks(Path("/proc/nowhere"))
