"""What lab 16 checks. The checks stand in farandole_tools.lab.loop_checks, which only the ranks import, with torch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from farandole_tools.lab import Check, Lab

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

ALL = (1, 2, 3, 4, 7)
FEW = (1, 2, 3, 4)  # where 7 would show nothing more


def run(name: str) -> Callable[[Any, LabCommunicator], None]:
    def check(student: Any, comm: LabCommunicator) -> None:
        getattr(import_module("farandole_tools.lab.loop_checks"), f"check_{name.replace(' ', '_')}")(student, comm)

    return check


LAB = Lab(
    title="Bring your own loop",
    file="distributed_loop.py",
    apart=False,
    patience=8.0,
    checks=(
        Check("share", 1, FEW[1:], run("share")),
        Check("batches", 1, (1,), run("batches")),
        Check("mean gradient", 1, ALL, run("mean gradient")),
        Check("branch", 1, ALL[1:], run("branch")),
        Check("one message", 1, FEW[1:], run("one message"), needs=("mean gradient",)),
        Check("clip", 1, FEW, run("clip")),
        Check("accumulate", 1, FEW, run("accumulate")),
        Check("train", 1, ALL, run("train")),
        Check("kill", 1, (1,), run("kill")),
        Check("unfinished save", 1, (1,), run("unfinished save")),
    ),
    with_torch=True,
)
