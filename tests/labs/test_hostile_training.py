"""Tricks of a submission of lab 12 in its sandbox: none gives it marks, and none ends the process of the checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole_tools.lab import labs, learner, mutants
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, on
from tests.labs.test_survive_a_kill import Alone, loaded

LAB = labs.find("12")
RIGHT = mutants.original(LAB)

# At the start of a file that has nothing else: the right answers, or what judges them, from elsewhere.
STOLEN = {
    "loads the reference": f"exec(open({str(LAB.folder / 'reference.py')!r}).read())",
    "loads the checks": f"exec(open({str(LAB.folder / 'check.py')!r}).read())",
    "imports the method": "import farandole.recovery.membership",
    "imports what is expected": "from farandole_tools.lab.watched_training import STATES",
    "imports the simulated ranks": "from farandole_tools.lab.simulated_ranks import SimulatedRanks",
    "imports MPI": "from mpi4py import MPI",
}
REPLACES = """
import gc

for each in gc.get_objects():
    name = getattr(each, "__name__", "")
    if callable(each) and (name == "expect" or name.startswith("check_")) and hasattr(each, "__code__"):
        each.__code__ = (lambda *_: None).__code__
"""
# Replaces what runs in the sandbox beside the submission, so that it tells of a training that there was not.
FORGES = """
import json
from farandole_tools.lab import recorded_training
from farandole_tools.lab.rank_threads import Ended
from farandole_tools.lab.small_training import Worker

def told(answers):
    worker = Worker(0)
    for _ in range(4):
        worker.compute(worker.batch())
        worker.update()
    parts = [list(worker.parameters), list(worker.momentum), [0.0, 0.0]]
    return [(Ended(), json.dumps([["now", [], 4, parts, None]])) for _ in answers]

recorded_training.Harness.resume = lambda self, answers: told(answers)

def divide(samples, rank, size):
    return samples[rank::size]
"""
# What it may send in place of a step and of events.
GARBAGE = (
    "[]",
    "7",
    "None",
    "[7]",
    "[(7, '[]')]",
    "[(None, None)]",
    "[(Made('all_reduce', 0, np.ones(1)), '[]')] * 9",
    "[(Made('no such call', 0), '[]')]",
    "[(Made(['all_reduce'], 0), '[]')]",
    "[(Made('agree', 0, True), '[]')]",
    "[(Made('agree', 0, 'yes'), '[]')]",
    "[(Made('agree', 5, True), '[]')]",
    "[(Made('agree', -1, True), '[]')]",
    "[(Made('agree', 'x', True), '[]')]",
    "[(Made('all_gather', 0, 2.5), '[]')]",
    "[(Made('all_reduce', 0, 'text'), '[]')]",
    "[(Made('all_reduce', 0, np.array([None])), '[]')]",
    "[(Made('all_reduce', 0, lambda: 0), '[]')]",
    "[(Made('broadcast', 0, np.ones(1), 7), '[]')]",
    "[(Made('broadcast', 0, np.ones(1), None), '[]')]",
    "[(Ended(), '[[')]",
    "[(Ended(), '[' * 100_000)]",
    "[(Ended(), '{}')]",
    "[(Ended(), '[7]')]",
    '[(Ended(), \'[["compute", ["x"], 0, [[0, 0], [0, 0], [0, 0]], null]]\')]',
    "[(Ended(), '[[\"compute\", [], 1e999, [[0, 0], [0, 0], [0, 0]], null]]')]",
    "[(Ended(), '[[\"compute\", [], 0, [[0], [0], [0]], null]]')]",
    '[(Ended(), \'[["compute", [], 0, [[0, 0], [0, 0], [0, "x"]], null]]\')]',
    '[(Ended(), \'[["compute", [], 0, [[0, 0], [0, 0], [0, 0]], ["00", null]]]\')]',
    "[(Ended(NotSurvived(7)), '[]')]",
    "[(Ended(went_on=7), '[]')]",
    "[(Computes('x'), '[]')]",
)
CHOOSES = """
import numpy as np
from farandole_tools.lab import recorded_training
from farandole_tools.lab.rank_threads import Computes, Ended, Made
from farandole_tools.lab.recorded_training import NotSurvived

def choose(text):
    found = eval(text)
    recorded_training.Harness.resume = lambda self, answers: found
    recorded_training.Harness.wait = lambda self, number: (Ended(), "[]")
"""
# Right on paper. A process of the real launch has but one rank's thread.
ENDS_ITSELF = """
import os, threading
right = train

def train(comm, worker, steps):
    if comm.rank == 1 and threading.active_count() < 4:
        os._exit(0)
    right(comm, worker, steps)
"""


@pytest.mark.parametrize("trick", STOLEN)
def test_right_answers_and_what_judges_them_are_not_there(trick: str, tmp_path: Path) -> None:
    path = tmp_path / LAB.file
    path.write_text(STOLEN[trick])
    results = grade(on(LAB, 1, checks=("divide", "recover")), path, limit_s=LIMIT_S).results
    for result in results:
        assert not result.passed
        assert "No such file" in result.message or "No module named" in result.message


@pytest.mark.parametrize("text", [REPLACES, FORGES], ids=["replaces the checks", "forges what is told of it"])
def test_what_a_submission_replaces_gives_no_marks(text: str, tmp_path: Path) -> None:
    path = tmp_path / LAB.file
    path.write_text(text)
    checks = [check.name for check in LAB.checks if check.name != "divide"]
    graded = grade(on(LAB, 1, checks=checks), path, limit_s=LIMIT_S)
    assert graded.points == 0
    assert all(result.message for result in graded.results)


@pytest.fixture(scope="module")
def chooses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A submission in its sandbox."""
    path = tmp_path_factory.mktemp("chooses") / LAB.file
    path.write_text(CHOOSES)
    with loaded(path, apart=True) as student:
        yield student


@pytest.mark.parametrize("garbage", GARBAGE)
def test_whatever_a_submission_sends_its_check_fails(chooses: Any, garbage: str) -> None:
    chooses.submission.choose(garbage)
    for check in LAB.checks:
        if check.name in ("recover", "no death", "random numbers"):
            with pytest.raises(Exception) as error:  # noqa: PT011 - of whichever class: it is explained
                check.run(chooses, Alone())  # type: ignore[arg-type]
            assert learner.explain(error.value, Path(chooses.submission.__file__))


def test_a_submission_that_ends_its_process_in_the_real_launch_fails_that_check(tmp_path: Path) -> None:
    path = tmp_path / LAB.file
    path.write_text(RIGHT + ENDS_ITSELF)
    (result,) = grade(on(LAB, 1, checks=("one kill",)), path, limit_s=LIMIT_S).results
    assert not result.passed
    assert "the submission has ended its process" in result.message
