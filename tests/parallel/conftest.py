"""Fixtures to run a program under mpirun, give ranks cards, and compare a training with an undisturbed one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from farandole import Run
from farandole.runtime import rank_starter
from farandole.runtime.launcher import run_ranks
from farandole_tools.forked_ranks import fork_client, fork_server
from tests.card import build
from tests.conftest import SESSION

# For expensive tests marked one_in(2): make test runs 1, 4 and 3 ranks. Seven take as long as all of these.
RANKS_OF_DEAR_TESTS = [1, 2, 4, 7, 3]
PROGRAMS = Path(__file__).parent / "programs"


def assert_same_training(run: Run, whole: Run, but_for: Collection[int] = ()) -> None:
    """Compare losses, to rounding; in the steps `but_for` the dead rank's part of the loss is unknown."""
    for line, expected in zip(run.metrics, whole.metrics, strict=True):
        if line["step"] not in but_for:
            assert line["loss"] == pytest.approx(expected["loss"], rel=2e-3), line["step"]
    assert run.summary.final_loss == pytest.approx(whole.summary.final_loss, rel=2e-3)
    assert run.summary.test_accuracy == pytest.approx(whole.summary.test_accuracy, abs=0.01)


def is_rank(process: psutil.Process) -> bool:
    """Return whether mpirun has started the process as a rank."""
    return "OMPI_COMM_WORLD_RANK" in process.environ()


@pytest.fixture
def under_mpirun() -> Callable[..., Any]:
    """Run tests/parallel/programs/NAME on `ranks` ranks; an assertion that fails there fails here.

    Rank 0's last line is the program's answer, as JSON, and proves that the program ran to its end.
    """

    def run(name: str, ranks: int, *arguments: str, timeout_s: float = 300) -> Any:
        output = run_ranks([str(PROGRAMS / name), *arguments], ranks, timeout_s=timeout_s)
        return json.loads(output.stdout[0].strip().splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def environment_with_cards(session: str) -> Mapping[str, str]:
    """Return the environment variables by which launches have two cards for tests (tests/card), and no others.

    Their ranks come from a separate fork server, which has loaded the card.
    """
    try:
        folder = str(build.folder())
    except build.CannotBuild as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as environment:
        for name in (fork_client.ADDRESS, rank_starter.MODULE, SESSION):  # it stays until the last test has ended
            environment.delenv(name, raising=False)
        environment.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        environment.setenv("CUDA_VISIBLE_DEVICES", "")
        fork_server.start()
        names = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", fork_client.ADDRESS, rank_starter.MODULE)
        return {name: os.environ[name] for name in names if name in os.environ}


@pytest.fixture
def card_for_tests(environment_with_cards: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the launches of this test cards, which --device auto takes."""
    for name, value in environment_with_cards.items():
        monkeypatch.setenv(name, value)
