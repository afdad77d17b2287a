"""Checks of lab 16. They are in farandole_tools.lab.loop, which only the ranks import, with torch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from farandole_tools.lab import Check, Lab

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

ALL = (1, 2, 3, 4, 7)
STEP = ("share", "batches", "mean gradient", "branch", "clip", "accumulate")  # checks of what a training uses
FEW = (1, 2, 3, 4)  # where 7 would show nothing more


def run(name: str, module: str = "checks") -> Callable[[Any, LabCommunicator], None]:
    def check(student: Any, comm: LabCommunicator) -> None:
        getattr(import_module(f"farandole_tools.lab.loop.{module}"), f"check_{name.replace(' ', '_')}")(student, comm)

    return check


LAB = Lab(
    title="Bring your own loop",
    file="distributed_loop.py",
    harness="farandole_tools.lab.loop.harness",
    shares_files=True,
    patience=8.0,
    checks=(
        Check("share", 1, FEW[1:], run("share")),
        Check("batches", 1, (1,), run("batches")),
        Check("mean gradient", 1, ALL, run("mean gradient", "gradients")),
        Check("branch", 1, ALL[1:], run("branch", "gradients"), builds_on=("mean gradient",)),
        Check("one message", 1, FEW[1:], run("one message", "gradients"), needs=("mean gradient",)),
        Check("clip", 1, FEW, run("clip", "gradients"), builds_on=("mean gradient",)),
        Check("accumulate", 1, FEW, run("accumulate", "gradients"), builds_on=("mean gradient",)),
        Check("train", 1, ALL, run("train"), builds_on=STEP),
        Check("kill", 1, (1,), run("kill", "kills"), builds_on=(*STEP, "train")),
        Check("unfinished save", 1, (1,), run("unfinished save", "kills"), builds_on=(*STEP, "train")),
    ),
    with_torch=True,
)
