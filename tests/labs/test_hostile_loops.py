"""Lab 16 in its sandbox: right answers and messages are as elsewhere, and a submission cannot give itself marks."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from farandole.runtime import processes
from farandole_tools.lab import labs, mutants
from farandole_tools.lab.contained import fork_client, forks
from farandole_tools.lab.grading import Result, grade, isolation
from farandole_tools.lab.labs import Lab
from tests.labs.labs_for_tests import LIMIT_S, by_name, on
from tests.labs.test_bring_your_own_loop import ANOTHER, ON_SEVERAL
from tests.labs.test_hostile_submissions import eventually

LAB = labs.find("16")
ON_TWO = on(LAB, 2, checks=[name for name in ON_SEVERAL if name != "batches"])

# Makes every function of the checks that it finds in memory pass, as it would in the process of the checks.
REPLACES = """
import gc
import sys

JUDGES = ("check_", "expect", "wrong_", "raise_first", "returned", "verdict", "near", "differing")

for each in gc.get_objects():
    if getattr(each, "__name__", "").startswith(JUDGES) and hasattr(each, "__code__"):
        each.__code__ = (lambda *given, **named: "").__code__
for module in list(sys.modules.values()):
    if hasattr(module, "expect"):
        module.expect = lambda *given: None


def share(model, comm): pass
def parts(*given): return []
def mean_gradient(model, parts, comm): pass
def take_step(*given): pass
def train(*given): pass
"""

# Reports to the checks what no model has, instead of calling a submission.
LIES = """
import numpy as np

from farandole_tools.lab.loop import harness

class Liar:
    def __getattr__(self, name): return self
    def __call__(self, *given, **named): return self
    def __eq__(self, other): return True
    def __bool__(self): return True
    __hash__ = None

def train(self, seed, comm, folder, every, watch):
    watch.before_step(Liar(), {"words.weight": Liar()})
    watch.half_saved()
    for step in range(100):
        watch.after_step([Liar(), np.zeros(3)])

harness.Harness.share = lambda self, *given: {"replaced": [], "tied": Liar(), "trains": Liar(), "state": Liar()}
harness.Harness.parts = lambda self, *given: Liar()
harness.Harness.mean_gradient = lambda self, *given: dict.fromkeys(
    ("words.weight", "frozen.weight", "hidden.weight", "hidden.bias", "rare.weight", "rare.bias"), np.zeros(10**6))
harness.Harness.take_step = lambda self, *given: {"words.weight": np.array([None])}
harness.Harness.train = train
"""

# Names what it can import of the solution, of the checks and of MPI, and what else it should not see.
LOOKS = """
import importlib
import os
import sys

NAMES = (
    "mpi4py", "farandole.own_loop.loop", "farandole_tools.lab.loop.expected", "farandole_tools.lab.loop.checks",
    "farandole_tools.lab.collective_calls", "farandole_tools.forked_ranks.forks", "scipy", "reference", "check",
)
found = []
for name in NAMES:
    try:
        found.append((name, vars(importlib.import_module(name)).keys() - {"CollectiveCommunicator"}))
    except ImportError:
        pass
found = [name for name, own in found if any(not each.startswith("__") for each in own)]
found += [name for name in sys.modules if "own_loop" in name or name.startswith("mpi4py")]
try:
    environment = open("/proc/self/environ", "rb").read()
except PermissionError:
    environment = b""
if b"SECRET_OF_THE_GRADER" in environment or "SECRET_OF_THE_GRADER" in os.environ:
    found.append("the grader's environment")

def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

there = [number for number in range(128) if is_open(number)]
if len(there) > 5:  # the three standard streams, and two connections
    found.append(there)
raise ValueError(f"finds {found}")
"""

# Says that its state is being saved before it has been trained.
KILLS_ITSELF = """
from farandole_tools.lab.loop import harness

def train(self, seed, comm, folder, every, watch):
    watch.half_saved()

harness.Harness.train = train
"""

ENDS = """
import os

right = train

def train(job, comm, *given):
    if comm.size == 3:
        os._exit(0)
    right(job, comm, *given)
"""


def judged(lab: Lab, folder: Path, text: str) -> dict[str, Result]:
    path = folder / LAB.file
    path.write_text(text)
    return by_name(grade(lab, path, limit_s=LIMIT_S))


def test_a_right_answer_has_full_marks_on_several_ranks(tmp_path: Path) -> None:
    results = judged(on(LAB, 3, checks=ON_SEVERAL), tmp_path, ANOTHER)
    assert {name: each.message for name, each in results.items() if not each.passed} == {}


def test_a_submission_that_replaces_what_it_finds_in_memory_has_no_marks(tmp_path: Path) -> None:
    results = judged(ON_TWO, tmp_path, REPLACES)
    assert sum(each.points for each in results.values()) == 0
    assert "on rank 1 nothing of the model is as on rank 0" in results["share"].message
    assert "the gradient on rank 0 is 0" in results["mean gradient"].message


def test_a_submission_that_reports_nonsense_has_no_marks(tmp_path: Path) -> None:
    results = judged(on(LAB, 2), tmp_path, mutants.original(LAB) + LIES)
    assert sum(each.points for each in results.values()) == 0
    assert "the model has no words.weight any more" in results["share"].message
    assert "words.weight is no longer float64 of shape (10, 4)" in results["mean gradient"].message


def test_a_submission_finds_nothing_of_the_solution_or_of_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation() in ("account", "none"):
        pytest.skip("there it can read what every user can")
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "yes")
    results = judged(on(LAB, 3, checks=("share",)), tmp_path, LOOKS)
    assert "ValueError: finds []" in results["share"].message


def test_a_kill_that_the_submission_asks_for_does_not_count(tmp_path: Path) -> None:
    results = judged(on(LAB, 1, checks=("unfinished save",)), tmp_path, mutants.original(LAB) + KILLS_ITSELF)
    assert "rank 0 returns after 0 of 6 steps" in results["unfinished save"].message


def test_a_submission_that_ends_its_process_in_a_real_training_is_told(tmp_path: Path) -> None:
    """In the rehearsal it behaves, and in the training on three ranks it does not."""
    results = judged(on(LAB, 1, checks=("kill",)), tmp_path, mutants.original(LAB) + ENDS)
    told = r"SIGKILL to rank 1 after 4 steps: rank \d ended in the middle: by os\._exit"
    assert re.search(told, results["kill"].message)


def test_the_helpers_of_a_right_answer_are_there_in_a_real_training(tmp_path: Path) -> None:
    (tmp_path / "own_helper.py").write_text(mutants.original(LAB))
    path = tmp_path / LAB.file
    path.write_text("from own_helper import mean_gradient, parts, share, take_step, train\n")
    result = grade(on(LAB, 1, checks=("unfinished save",)), path, helpers=True, limit_s=LIMIT_S)
    assert [(check.name, check.message) for check in result.results if not check.passed] == []


def test_when_the_grader_is_killed_its_sandboxes_end() -> None:
    """The first one loops in the submission's import, and ignores what it may."""
    ignores = "import signal\nfor each in range(1, 16): each in (9,) or signal.signal(each, signal.SIG_IGN)\n"
    with tempfile.TemporaryDirectory(prefix="farandole-killed-") as name:
        Path(name, "loop.py").write_text(f"{ignores}while True: pass\n")
        command = [sys.executable, "-m", "farandole", "lab", "check", "16", "loop.py", "--time-limit", "1000"]
        environment = {key: value for key, value in os.environ.items() if key != fork_client.ADDRESS}
        grader = subprocess.Popen(command, cwd=name, env=environment | {"TMPDIR": name}, stdout=subprocess.DEVNULL)
        try:
            # The process that forks, and in a fork at least the one that waits and the one with the submission.
            assert eventually(lambda: len(sandbox_processes(name)) >= 3)
        finally:
            grader.kill()
            grader.wait()
        assert eventually(lambda: not sandbox_processes(name))
        assert eventually(lambda: not processes.find("TMPDIR", name))


def sandbox_processes(folder: str) -> list[psutil.Process]:
    """Return the process from which sandboxes are forked, if its socket is in that folder, and its forks."""
    found = ((each, " ".join(each.info["cmdline"] or [])) for each in psutil.process_iter(["cmdline", "status"]))
    alive = [each for each, line in found if folder in line and "import forks" in line]
    return [each for each in alive if each.info["status"] != psutil.STATUS_ZOMBIE]


def test_a_sandbox_cannot_request_another_one() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ConnectionRefusedError):
        forks.received(ours)
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert forks.descends_from(os.getpid(), child.pid)
        assert not forks.descends_from(child.pid, os.getpid())
    finally:
        child.communicate()


def test_where_nothing_forks_sandboxes_each_imports_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_client.ADDRESS, "")
    results = judged(on(LAB, 1, checks=("batches", "mean gradient")), tmp_path, mutants.original(LAB))
    assert [each.message for each in results.values() if not each.passed] == []
