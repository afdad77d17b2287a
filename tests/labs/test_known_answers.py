"""The checks are checked: the stub fails, the reference passes, each wrong answer fails for its own reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.lab import labs
from farandole.lab.grading import grade
from tests.labs.labs_for_tests import FOLDERS, by_name, module_at, on

# One launch for each wrong answer: four ranks, or as few as the lab's checks need. What holds for other numbers of
# ranks the reference's full run shows.
RANKS = {
    "08_one_f_one_b": 2,
    "10_atomic_checkpoint": 2,
    "11_election": 1,
    "12_survive_a_kill": 1,
}
JUDGE_TIMES = {"15_predict_then_measure": {"measure", "real steps"}}  # these checks of these labs
WRONG = [path for folder in FOLDERS for path in sorted((folder / "wrong").glob("*.py"))]
alone_if_it_judges_times = [
    pytest.param(path, id=path.name, marks=pytest.mark.alone if path.name in JUDGE_TIMES else ()) for path in FOLDERS
]


def fails_in_time(path: Path) -> bool:
    """Whether a wrong answer fails a check that judges times."""
    return not JUDGE_TIMES.get(path.parents[1].name, set()).isdisjoint(module_at(path).FAILS)


# A right ring that looks different: to the left, and with separate sends and receives.
ANOTHER_RING = """
import numpy as np

def ring_all_reduce_mean(gradient, comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    chunks = np.array_split(gradient, comm.size)[::-1]

    def shift(chunk, arriving):
        if comm.rank % 2:
            comm.receive(arriving, right)
            comm.send(chunk, left)
        else:
            comm.send(chunk, left)
            comm.receive(arriving, right)

    if comm.size == 1:
        return
    for step in range(comm.size - 1):
        mine = chunks[(comm.rank + step + 1) % comm.size]
        arriving = np.zeros(mine.shape, gradient.dtype)
        shift(chunks[(comm.rank + step) % comm.size], arriving)
        mine[:] = arriving + mine
    for step in range(comm.size - 1):
        if step == 0:
            chunks[(comm.rank - 1) % comm.size][:] *= gradient.dtype.type(1 / comm.size)
        shift(chunks[(comm.rank + step - 1) % comm.size], chunks[(comm.rank + step) % comm.size])
"""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_handed_out_fails_every_check_as_not_implemented(folder: Path) -> None:
    lab = on(labs.load(folder), 1)
    result = grade(lab, folder / lab.file)
    assert result.points == 0
    for check in result.results:
        assert not check.passed
        assert check.message.startswith("not implemented yet: "), check


@pytest.mark.parametrize("folder", alone_if_it_judges_times)
def test_the_reference_gets_full_marks_on_every_number_of_ranks(folder: Path) -> None:
    command = [sys.executable, "-m", "farandole", "lab", "check", folder.name, "--with", "reference", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    result = json.loads(done.stdout)
    assert [check["message"] for check in result["checks"] if not check["passed"]] == []
    assert result["points"] == result["max_points"] == 10
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ANOTHER_RING)
    result = grade(on(labs.find("2"), 3, 4), tmp_path / "mine.py")
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=f"{path.parents[1].name}-{path.stem}",
            marks=pytest.mark.alone if fails_in_time(path) else (),
        )
        for path in WRONG
    ],
)
def test_a_wrong_answer_fails_for_its_own_reason_and_for_no_other(path: Path) -> None:
    lab, wrong = labs.load(path.parents[1]), module_at(path)
    usual = RANKS.get(path.parents[1].name, 4)
    expected, ranks = wrong.FAILS, getattr(wrong, "RANKS", usual)
    assert expected, "a known wrong answer names what it fails"
    # A mistake that takes another number of ranks is held only to what the lab itself checks on so many.
    names = [check.name for check in lab.checks if ranks == usual or ranks in check.ranks]
    if not fails_in_time(path):  # and need not be alone
        names = [name for name in names if name not in JUDGE_TIMES.get(path.parents[1].name, set())]
    assert set(expected) <= set(names)
    if set(expected) == set(names):  # perhaps a launch for each check: every third one is enough
        names = names[::3]
    results = by_name(grade(on(lab, ranks, checks=names), path))
    for name in names:
        if name in expected:
            assert not results[name].passed, name
            assert expected[name] in results[name].message
            assert results[name].points == 0
        else:
            assert results[name].passed, results[name].message
            assert results[name].points == results[name].max_points


@pytest.mark.parametrize("path", WRONG, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_a_wrong_answer_says_in_its_first_line_what_is_wrong(path: Path) -> None:
    text = module_at(path).__doc__
    assert text
    assert text.strip().splitlines()[0].endswith(".")


def test_every_check_is_failed_by_some_wrong_answer_that_passes_others() -> None:
    """A check that no mistake sets off, or that only total failures set off, would be untested."""
    for folder in FOLDERS:
        names = {check.name for check in labs.load(folder).checks}
        telling = [set(module_at(path).FAILS) for path in (folder / "wrong").glob("*.py")]
        assert names - set().union(*(failed for failed in telling if failed != names)) == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_readme_lists_the_checks_and_their_points(folder: Path) -> None:
    table = re.findall(r"^\| ([a-z -]+) \| (\d+) \| .+ \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert table == [(check.name, str(check.points)) for check in labs.load(folder).checks]
