"""Graders with fewer rights: each means of isolation gives right marks, says what it is, and contains what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from farandole.runtime import processes
from farandole_tools.lab import labs, mutants
from farandole_tools.lab.contained import start
from farandole_tools.lab.contained.sandbox import MODES, Mode
from tests.labs import fewer_rights
from tests.labs.test_sandbox import TRICKS, nothing_changed, write_tricks

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a child fewer rights"),
    pytest.mark.kernel,
]

# How a grader runs, and the best means that it then has.
WAYS: dict[str, Mode] = {
    "ordinary": "user",
    "unprivileged": "landlock",
    "ordinary,alone": "landlock",
    "alone": "landlock",
    "alone,unlocked": "account",
    "unprivileged,unlocked": "none",
    "ordinary,alone,unlocked": "none",
}
DISK = {"fills the disk with many files", "makes files without end"}
READS = {
    "loads the reference",
    "reads a sibling",
    "reads the hints",
    "reads wrong.py",
    "imports the library from its folder",
}
# The tricks that work, since nothing there prevents them.
WORKS: dict[str, set[str]] = {
    "ordinary": set(),
    "ordinary,alone": DISK,
    "alone": DISK,
    "alone,unlocked": DISK | READS | {"sees other processes"},
}
# What is not contained there, and depends on the machine or leaves something on it.
NETWORK = {"asks for a name", "calls the network"}
ELSEWHERE = {"finds a solution somewhere", "passes a file to the other rank", "passes bytes by a socket"}
NOT_TRIED: dict[str, set[str]] = {"ordinary,alone": {"asks for a name"}, "alone,unlocked": NETWORK | ELSEWHERE}
MARK = "FARANDOLE_TEST_OF_MODES"
# A process that no longer has a parent, a session or a variable by which it could be found.
DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["{name}", "1000"], {{}})
    os._exit(0)
"""
JUDGE = """
import json, os, sys
from pathlib import Path
from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
lab, submission = Path(sys.argv[1]), Path(sys.argv[2])
submission.write_text(submission.read_text().replace("GRADER = 0", f"GRADER = {os.getpid()}"))
given = grade(labs.load(lab), submission, limit_s=120)
print(json.dumps([given.isolation, [[each.passed, each.message] for each in given.results], submission.read_text()]))
"""
# The ranks, too, do not import torch each.
PREPARE = """
from farandole.runtime import rank_starter
rank_starter.prepare("torch._dynamo")
"""
# Of a lab these checks alone, each on the smallest number of ranks.
FEW_CHECKS = (
    "labs.replace(whole := labs.load(lab), "
    "checks=tuple(labs.replace(each, ranks=each.ranks[:1]) for each in whole.checks if each.name in {names}))"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can read, with one in it in which every user can write."""
    with tempfile.TemporaryDirectory(prefix="farandole-modes-") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "temporary").mkdir()
        (path / "temporary").chmod(0o1777)
        (path / "here").mkdir()
        os.chown(path / "here", fewer_rights.ORDINARY, fewer_rights.ORDINARY)
        yield path


def run(way: str, folder: Path, *words: str) -> str:
    """Run a Python program with these rights; return what it prints. It has to leave nothing behind."""
    mark = str(folder)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("OMPI_", "OPENBLAS_", "OMP_", "FARANDOLE_TEST"))
    }
    environment = kept | {MARK: mark, "PATH": os.environ["PATH"], "TMPDIR": str(folder / "temporary"), "HOME": "/"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "SECRET_OF_THE_GRADER": "yes", "COLUMNS": "200"}
    command = [sys.executable, fewer_rights.__file__, way, sys.executable, "-P", *words]
    done = subprocess.run(
        command, cwd=folder / "temporary", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not processes.find(MARK, mark)
    return done.stdout


def skip_unless_possible(way: str) -> None:
    """Skip where this kernel does not permit the best means that the grader has with these rights."""
    if WAYS[way] == "landlock" and start.landlock_version() < 6:
        pytest.skip("this kernel has no Landlock that knows of signals")
    tries = [sys.executable, fewer_rights.__file__, way, shutil.which("unshare") or "unshare", "--user", "true"]
    if WAYS[way] == "user" and subprocess.run(tries, capture_output=True, check=False).returncode:
        pytest.skip("this kernel permits ordinary users no namespaces")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_right_submission_has_full_marks_and_the_report_says_how_it_was_kept_apart(way: str, folder: Path) -> None:
    skip_unless_possible(way)
    lab = labs.find("1")
    (folder / "here" / "right.py").write_text(DAEMON.format(name=folder.name) + mutants.original(lab))
    shown = run(way, folder, "-m", "farandole", "lab", "grade", "1", str(folder / "here"))
    assert f"{lab.max_points} of {lab.max_points}" in shown
    assert f"Isolation: {MODES[WAYS[way]]}" in shown
    left = [path.name for path in (folder / "temporary").iterdir()]
    assert left == [f"grades_{lab.name}.jsonl"]
    nothing_runs(folder)


@pytest.mark.parametrize("way", WORKS)
def test_the_tricks_that_work_are_those_that_are_documented(way: str, folder: Path) -> None:
    skip_unless_possible(way)
    tricks = {name: body for name, body in TRICKS.items() if name not in NOT_TRIED.get(way, ())}
    lab, _ = write_tricks(folder / "here", tricks, grader="0")
    for path in (folder / "here").iterdir():
        os.chown(path, fewer_rights.ORDINARY, fewer_rights.ORDINARY)
    judge = folder / "judge.py"
    judge.write_text(JUDGE)
    output = run(way, folder, str(judge), str(lab), str(folder / "here" / "submission.py"))
    isolation, results, text = json.loads(output)
    assert isolation == WAYS[way]
    found = {name: message for name, (passed, message) in zip(tricks, results, strict=True) if not passed}
    assert {name: message for name, message in found.items() if name not in WORKS[way]} == {}
    assert set(found) == WORKS[way]
    nothing_changed(folder / "here", text)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", ["alone", "ordinary", "ordinary,alone", "alone,unlocked"])
def test_a_right_submission_with_torch_has_full_marks(way: str, folder: Path) -> None:
    """Its sandboxes are forked, share files, and compute to the bit what the checks do."""
    skip_unless_possible(way)
    lab = labs.find("16")
    path = folder / "here" / lab.file
    path.write_text(DAEMON.format(name=folder.name) + mutants.original(lab))
    os.chown(path, fewer_rights.ORDINARY, fewer_rights.ORDINARY)
    judge = folder / "judge.py"
    judge.write_text(PREPARE + JUDGE.replace("labs.load(lab)", FEW_CHECKS.format(names=("share", "unfinished save"))))
    isolation, results, _ = json.loads(run(way, folder, str(judge), str(lab.folder), str(path)))
    assert isolation == WAYS[way]
    assert [message for _, message in results] == ["", ""]
    nothing_runs(folder)


def nothing_runs(folder: Path) -> None:
    """Check that the process that DAEMON has started there is gone."""
    running = [each for each in psutil.process_iter(["cmdline"]) if folder.name in (each.info["cmdline"] or [])]
    processes.end(running)
    assert not running, "the submission's process"
