"""Lab 3: a correct answer may exchange with its partners in another order, and fold in another way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S

LAB = labs.find("3")
AT_MOST = 5  # ranks: there all kinds of numbers are among them

# The farthest partner first, separate sends and receives, and Rabenseifner's own folding: each of a pair adds up one
# half, the extra rank sends its half to the other, and waits for the whole result.
FARTHEST_FIRST = """
import numpy as np

def swap(mine, theirs, other, comm):
    if comm.rank < other:
        comm.send(mine, other)
        comm.receive(theirs, other)
    else:
        comm.receive(theirs, other)
        comm.send(mine, other)

def reduce_between(vector, ranks, comm, window):
    if len(ranks) == 1:
        return
    half, middle = len(ranks) // 2, sum(window) // 2
    place = ranks.index(comm.rank)
    low = place < half
    other = ranks[place + half if low else place - half]
    mine, theirs = (slice(window[0], middle), slice(middle, window[1]))[:: 1 if low else -1]
    arriving = np.zeros(mine.stop - mine.start, np.float32)
    swap(vector[theirs], arriving, other, comm)
    vector[mine] = arriving + vector[mine]
    reduce_between(vector, ranks[:half] if low else ranks[half:], comm, (mine.start, mine.stop))
    swap(vector[mine], vector[theirs], other, comm)

def halving_doubling_all_reduce(vector, comm):
    core, half = 1, len(vector) // 2
    while 2 * core <= comm.size:
        core *= 2
    extra = comm.size - core
    paired, other = comm.rank < 2 * extra, comm.rank ^ 1
    if paired:
        beyond = comm.rank % 2
        mine, theirs = (slice(half), slice(half, None))[:: -1 if beyond else 1]
        arriving = np.empty_like(vector[mine])
        swap(vector[theirs], arriving, other, comm)
        vector[mine] += arriving
        if beyond:
            comm.send(vector[mine], other)
            comm.receive(vector, other)
            return
        comm.receive(vector[theirs], other)
    ranks = [*range(0, 2 * extra, 2), *range(2 * extra, comm.size)]
    reduce_between(vector, ranks, comm, (0, len(vector)))
    if paired:
        comm.send(vector, other)
"""


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FARTHEST_FIRST)
    checks = [replace(check, ranks=tuple(size for size in check.ranks if size <= AT_MOST)) for check in LAB.checks]
    result = grade(replace(LAB, checks=tuple(checks)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []
    assert min(len(check.ranks) for check in checks) >= 2
