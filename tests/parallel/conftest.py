"""How the tests here run a program under mpirun and get its answer, and compare a training with an undisturbed one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import psutil
import pytest

from farandole import Run
from farandole.runtime.launcher import run_ranks

PROGRAMS = Path(__file__).parent / "programs"


def assert_same_training(run: Run, whole: Run, but_for: Collection[int] = ()) -> None:
    """The same to rounding; of the steps `but_for` the dead one's part of the loss is not known."""
    for line, expected in zip(run.metrics, whole.metrics, strict=True):
        if line["step"] not in but_for:
            assert line["loss"] == pytest.approx(expected["loss"], rel=2e-3), line["step"]
    assert run.summary.final_loss == pytest.approx(whole.summary.final_loss, rel=2e-3)
    assert run.summary.test_accuracy == pytest.approx(whole.summary.test_accuracy, abs=0.01)


def is_rank(process: psutil.Process) -> bool:
    """Whether mpirun has started the process as a rank."""
    return "OMPI_COMM_WORLD_RANK" in process.environ()


@pytest.fixture
def under_mpirun() -> Callable[..., Any]:
    """Run tests/parallel/programs/NAME on so many ranks; an assertion that fails there fails here.

    Rank 0's last line is the program's answer, as JSON: having it proves that the program ran to its end.
    """

    def run(name: str, ranks: int, *arguments: str, timeout_s: float = 300) -> Any:
        output = run_ranks([str(PROGRAMS / name), *arguments], ranks, timeout_s=timeout_s)
        return json.loads(output.stdout[0].strip().splitlines()[-1])

    return run
