"""Labs: their parts, and the folders that have them.

A lab's ``check.py`` defines ``LAB``; each of its checks is a function of the submission (a module)
and a communicator that runs on every rank and raises, through `expect`, what is wrong.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from farandole.errors import UsageError
from farandole_tools import material

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

LABS = material.folder("labs")
FILES = "files"  # in the folder in which the checks of a launch run


class Wrong(Exception):
    """A submission does not fulfil its task; the message tells the learner what is wrong."""


def expect(condition: object, message: str) -> None:
    """End a check with `message` unless `condition` holds."""
    if not condition:
        raise Wrong(message)


@dataclass(frozen=True)
class Check:
    """One thing that is judged.

    Attributes:
        name: what is judged, in a word or two; unique in the lab.
        points: given if it passes at every number of ranks in `ranks`, else 0.
        run: called on every rank with the submission and a fresh communicator.
        needs: checks of the result without which this one, of the cost, gives no points.
        builds_on: checks of what this one uses. While one of them fails, a failure of this one may be its consequence:
            the learner is then told to pass that one first.
    """

    name: str
    points: int
    ranks: tuple[int, ...]
    run: Callable[[Any, LabCommunicator], None]
    needs: tuple[str, ...] = ()
    builds_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lab:
    """One lab.

    Attributes:
        file: the name of the file to complete.
        checks: in the order in which they are run and shown.
        folder: where the lab lies; filled in by `load`.
        with_torch: its ranks and submissions need torch: they begin in a Python that has imported it, if there is one.
        harness: the module whose `Harness` calls the submission in the submission's process, for objects that cannot be
            used from elsewhere, such as those of torch. The checks call the harness, and get numbers from it.
        shares_files: the submission writes files, in the folder FILES, that it reads on other ranks.
        patience: multiplies the time limit in a sandbox: a call from process to process takes 0.2 ms, and processes
            start more slowly.
    """

    title: str
    file: str
    checks: tuple[Check, ...]
    folder: Path = Path()
    with_torch: bool = False
    patience: float = 1.0
    harness: str = ""
    shares_files: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def number(self) -> int:
        return int(self.name.partition("_")[0])

    @property
    def max_points(self) -> int:
        return sum(check.points for check in self.checks)


def load(folder: Path) -> Lab:
    """Return the lab in `folder`, as its check.py describes it."""
    return replace(cast(Lab, module_at(folder / "check.py").LAB), folder=folder)


def module_at(path: Path) -> ModuleType:
    """Import a file of a lab's folder, check.py or wrong.py; submissions are never imported here."""
    spec = importlib.util.spec_from_file_location(f"farandole_lab_{path.parent.name}_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks up its own module there
    spec.loader.exec_module(module)
    return module


def folders() -> list[Path]:
    """Return every lab's folder, in order of the labs' numbers.

    Raises:
        UsageError: this is an installation without the labs.
    """
    found = sorted(path.parent for path in LABS.glob("[0-9][0-9]_*/check.py"))
    if not found:
        raise UsageError("the labs are not here: install from a wheel, or from a clone of the repository")
    return found


def find(wanted: str) -> Lab:
    """Return the lab with that number or name: "2", "02" or "02_ring_all_reduce".

    Raises:
        UsageError: there is no such lab.
    """
    for folder in folders():
        number = folder.name.partition("_")[0]
        if wanted == folder.name or (wanted.isdecimal() and int(wanted) == int(number)):
            return load(folder)
    choices = ", ".join(f"{int(folder.name.partition('_')[0])} ({folder.name})" for folder in folders())
    raise UsageError(f"there is no lab {wanted!r}: choose from {choices}")
