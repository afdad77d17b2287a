"""The labs, notebooks and batch scripts: in a checkout at its root, in an installation inside this package.

farandole scripts DIR        copies the batch scripts, to be edited and submitted there
farandole notebooks DIR      copies the notebooks
"""

from __future__ import annotations

import shutil
from pathlib import Path

from farandole.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[2]
INSTALLED = Path(__file__).resolve().parent / "material"  # setup.py puts them there


def folder(name: str) -> Path:
    """Return where `name` ("labs", "notebooks" or "slurm") lies."""
    return CHECKOUT / name if (CHECKOUT / "pyproject.toml").is_file() else INSTALLED / name


def scripts(directory: Path, /) -> None:
    """Copy the Slurm batch scripts to a folder of yours; submit them from there.

    Args:
        directory: a new or empty folder.
    """
    _copy("slurm", ("*.sbatch", "*.sh", "README.md"), directory)
    print(f"{directory}: sbatch {directory / 'sync_sgd.sbatch'} trains; README.md says which lines to edit")


def notebooks(directory: Path, /) -> None:
    """Copy the notebooks to a folder of yours.

    Args:
        directory: a new or empty folder.
    """
    _copy("notebooks", ("*.ipynb",), directory)
    print(f"{directory}: jupyter lab {directory / '00_tour.ipynb'} opens the first")


def _copy(name: str, patterns: tuple[str, ...], directory: Path) -> None:
    found = [file for pattern in patterns for file in sorted(folder(name).glob(pattern))]
    if not found:
        raise UsageError(f"this installation has no {name}: install from a wheel or a clone of the repository")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} holds something already: give a new or empty folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in found:
            shutil.copy(file, directory)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written ({error.strerror}): give another folder") from error
