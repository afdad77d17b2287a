"""Lab 12: a correct answer may be written differently, and an invalid one gets a plain message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from farandole.runtime import guard
from farandole_tools.lab import labs, learner
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.contained import sandbox
from farandole_tools.lab.contained.host import Guest
from farandole_tools.lab.deadlock_detector import MORE_TIME
from farandole_tools.lab.grading import grade, isolation
from farandole_tools.lab.small_training import BATCH, Worker
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("12")
ON_PAPER = tuple(check.name for check in LAB.checks if "kill" not in check.name)

# Consecutive parts; the state is the sum of one worker's and nothing; the old random state is restored at once.
SUMMED_STATE = """
import copy
import numpy as np
from farandole_tools.lab.ulfm_communicator import PeerLost

def divide(samples, rank, size):
    return np.array_split(samples, size)[rank].tolist()

def recover(comm, done):
    if not done:
        comm.revoke()
    if comm.agree(done):
        return None
    new = comm.shrink()
    while not new.agree(True):
        new = new.shrink()
    return new

def catch_up(comm, worker):
    steps = comm.all_gather(worker.step)
    foremost = max(range(comm.size), key=lambda rank: steps[rank])
    if len(set(steps)) > 1:
        state = np.zeros(5)
        if comm.rank == foremost:
            state[:] = *worker.parameters, *worker.momentum, worker.step
        comm.all_reduce(state)
        worker.parameters, worker.momentum, worker.step = state[:2].copy(), state[2:4].copy(), int(state[4])
    for step, random in getattr(worker, "before", {}).items():
        if step == worker.step:
            worker.random = copy.deepcopy(random)

def attempt(comm, worker, steps):
    try:
        catch_up(comm, worker)
        for step in range(worker.step, steps):
            worker.before = {step: copy.deepcopy(worker.random)}
            worker.gradient = np.zeros_like(worker.gradient)
            worker.compute(divide(worker.batch(), comm.rank, comm.size))
            comm.all_reduce(worker.gradient)
            worker.update()
    except PeerLost:
        return False
    return True

def train(comm, worker, steps):
    new = recover(comm, attempt(comm, worker, steps))
    if new is not None:
        train(new, worker, steps)
"""

# No worker is ever ahead: an update is made only when all have agreed that all have the sum.
AGREED_STEPS = """
from farandole_tools.lab.ulfm_communicator import PeerLost

def divide(samples, rank, size):
    return [sample for place, sample in enumerate(samples) if place % size == rank]

def recover(comm, done):
    if not done:
        comm.revoke()
    return None if comm.agree(done) else comm.shrink()

def train(comm, worker, steps):
    while worker.step < steps:
        random = worker.random.getstate()
        worker.compute(divide(worker.batch(), comm.rank, comm.size))
        try:
            comm.all_reduce(worker.gradient)
            left = recover(comm, True)
        except PeerLost:
            left = recover(comm, False)
        if left is None:
            worker.update()
        else:
            comm = left
            worker.gradient[:] = 0
            worker.random.setstate(random)
"""

# Correct in the simulation, but under mpirun it never ends: there a process has but one rank's thread.
SLEEPS_UNDER_MPI = """
import threading, time
right = train

def train(comm, worker, steps):
    if comm.rank == 3 and threading.active_count() < 5:
        time.sleep(1000)
    right(comm, worker, steps)
"""


@pytest.mark.parametrize(
    ("answer", "checks", "ours"),
    [
        (SUMMED_STATE, ON_PAPER, True),
        (SUMMED_STATE, ("recover", "random numbers", "two kills"), False),
        (AGREED_STEPS, ON_PAPER, True),
    ],
    ids=["summed state", "summed state, apart", "agreed steps"],
)
def test_a_right_answer_need_not_look_like_ours(
    tmp_path: Path, answer: str, checks: tuple[str, ...], ours: bool
) -> None:
    (tmp_path / "mine.py").write_text(answer)
    result = grade(on(LAB, 2 if ours else 1, checks=checks), tmp_path / "mine.py", limit_s=LIMIT_S, ours=ours)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("body", "check", "message"),
    [
        ("def recover(comm, done): return 7", "recover", "recover returns 7, where a communicator or None is needed"),
        (
            "def recover(comm, done): return None",
            "recover",
            "recover returns None, as if all were done, but rank 1 had",
        ),
        ("def recover(comm, done): return comm.shrink()", "recover", "though no rank has died and all are done"),
        ("def divide(samples, rank, size): return samples", "no death", "more than one on its samples [0, 1,"),
        ("def train(comm, worker, steps): pass", "no death", "rank 0 has returned after 0 of 4 steps"),
        ("def train(comm, worker, steps): right(comm, worker, 9)", "no death", "takes step 4: there are only steps"),
        ("def train(comm, worker, steps): worker.nothing", "no death", "'nothing', at line "),
        ("def train(comm, worker, steps): raise PeerLost('me')", "a death", "not survived: PeerLost: me, at line"),
        (
            "def train(comm, worker, steps):\n    while True: comm.agree(True)",
            "no death",
            "rank 0 has made 400 calls and is not done; the last ones: …",
        ),
        (
            "def train(comm, worker, steps):\n"
            "    try: right(comm, worker, steps)\n"
            "    except BaseException: comm.agree(False)",
            "a death",
            "rank 0 has been killed, and its code goes on with agree: catch PeerLost only",
        ),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["here", "apart"])
def test_what_is_no_answer_is_told(tmp_path: Path, body: str, check: str, message: str, apart: bool) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{AGREED_STEPS}\nright = train\n\n\n{body}\n")
    run = next(each.run for each in LAB.checks if each.name == check)
    with pytest.raises(Exception) as wrong, loaded(path, apart) as student:  # noqa: PT011 - it is explained
        run(student, Alone())  # type: ignore[arg-type] # the simulation needs no launch
    assert message in learner.explain(wrong.value, path)


@contextmanager
def loaded(path: Path, apart: bool) -> Iterator[Any]:
    """A submission, in this process or in a sandbox."""
    if not apart:
        yield learner.load(path, LAB.harness)
        return
    with guard.temporary_folder(sandbox.PREFIX) as folder:
        guest = Guest(isolation(), folder / "guest", LAB, path, False, lambda: pytest.fail("it has ended"))
        try:
            yield guest.load()
        finally:
            guest.end()


class Alone:
    """The part of a LabCommunicator that a simulated check needs."""

    rank, size, current_case = 0, 1, ""
    case = LabCommunicator.case


@pytest.mark.parametrize("ours", [True, False], ids=["here", "apart"])
def test_an_endless_loop_is_ended_with_its_line(tmp_path: Path, ours: bool) -> None:
    body = "def train(comm, worker, steps):\n    while True:\n        pass\n"
    line = f"{AGREED_STEPS}{body}".splitlines().index("    while True:") + 2
    (tmp_path / "mine.py").write_text(f"{AGREED_STEPS}{body}")
    limit_s = 2 / (1 if ours else LAB.patience)
    result = grade(on(LAB, 1, checks=("a death",)), tmp_path / "mine.py", limit_s=limit_s, ours=ours).results[0]
    lines = [f"2 workers, no death (rank 0 at line {each}): still running after 2 s" for each in (line - 1, line)]
    assert result.message in [f"{each}{MORE_TIME}" for each in lines]


def test_a_worker_that_computes_for_ever_is_told_at_once_what_is_wrong(tmp_path: Path) -> None:
    body = "def train(comm, worker, steps):\n    while True:\n        worker.compute([])\n        worker.update()\n"
    (tmp_path / "mine.py").write_text(f"{AGREED_STEPS}{body}")
    result = grade(on(LAB, 1, checks=("a death",)), tmp_path / "mine.py", limit_s=LIMIT_S).results[0]
    assert "after the update of step 0 rank 0 is with the parameters of step 0" in result.message


def test_what_hangs_under_mpirun_is_ended_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "sleeps_for_ever.py").write_text(AGREED_STEPS + SLEEPS_UNDER_MPI)
    result = grade(on(LAB, 1, checks=("one kill",)), tmp_path / "sleeps_for_ever.py", limit_s=2).results[0]
    assert f"still running after {2 * LAB.patience:g} s" in result.message
    psutil.wait_procs(left_of("sleeps_for_ever.py"), timeout=10)
    assert left_of("sleeps_for_ever.py") == []


def left_of(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(name in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_a_sum_is_the_same_however_it_is_divided() -> None:
    whole, parts = Worker(0), [Worker(number) for number in range(5)]
    for step in range(4):
        whole.compute(whole.batch())
        for number, worker in enumerate(parts):
            worker.compute(worker.batch()[number::5])
        total = sum(worker.gradient for worker in parts)
        assert np.array_equal(total, whole.gradient)
        for worker in parts:
            worker.gradient[:] = total
            worker.update()
        whole.update()
        assert whole.batch() == list(range((step + 1) * BATCH, (step + 2) * BATCH))
    assert all(np.array_equal(worker.parameters, whole.parameters) for worker in parts)
