"""Lab 6: a correct answer may be written differently, and a missing part does not fail the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from tests.labs.labs_for_tests import LIMIT_S, by_name, on

LAB = labs.find("6")

# Another hash, a walk along all points, a set of all that has been applied, one array of all parameters.
KEY_SPACE = """
import hashlib
import numpy as np

def cut(keys, ranges):
    return [range(keys * i // ranges, keys * (i + 1) // ranges) for i in range(ranges)]

def at(*what):
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16)

class HashRing:
    def __init__(self, servers, virtual_nodes=64):
        self.stands = {at("node", server, i): server for server in servers for i in range(virtual_nodes)}
        self.points = np.array(sorted(self.stands))

    def server_of(self, key):
        after = self.points[self.points >= at("key", key)]
        return self.stands[int(after[0] if len(after) else self.points[0])]

def moving(ranges, servers, new):
    ring = HashRing({*servers, new})
    return [i for i in range(len(ranges)) if ring.server_of(ranges[i][0]) == new]
"""
EXCHANGE = """
class Store:
    def __init__(self, parts, rate):
        self.parts = {number: part.tolist() for number, part in parts.items()}
        self.rate = rate
        self.newest = {}

    def push(self, number, worker, clock, gradient):
        if clock <= self.newest.get((worker, number), -1):
            return False
        self.newest[worker, number] = clock
        self.parts[number] = [p - self.rate * g for p, g in zip(self.parts[number], gradient)]
        return True

    def pull(self, number):
        return np.array(self.parts[number])

def serve(store, ranges, workers, rounds, comm):
    for i in range(rounds * len(workers)):
        worker = workers[i % len(workers)]
        request = np.zeros(3, dtype=int)
        comm.receive(request, worker)
        while request[0] != 2:
            part = np.zeros(len(ranges[request[1]]))
            if request[0] == 0:
                comm.receive(part, worker)
                comm.send(np.array([int(store.push(int(request[1]), worker, request[2], part))]), worker)
            else:
                part[:] = store.pull(int(request[1]))
                comm.send(part, worker)
            comm.receive(request, worker)

class Client:
    def __init__(self, ranges, holders, comm):
        self.ranges, self.holders, self.comm = ranges, holders, comm

    def push(self, numbers, clock, gradient):
        answers = []
        for number in reversed(numbers):
            answers.append(np.zeros(1, dtype=int))
            self.comm.send(np.array([0, number, clock]), self.holders[number])
            self.comm.send(gradient[list(self.ranges[number])], self.holders[number])
            self.comm.receive(answers[-1], self.holders[number])
        return np.sum(answers)

    def pull(self, numbers, parameters):
        for number in numbers:
            arriving = np.zeros(len(self.ranges[number]))
            self.comm.send(np.array([1, number, 99]), self.holders[number])
            self.comm.receive(arriving, self.holders[number])
            parameters[list(self.ranges[number])] = arriving

    def end_round(self):
        for server in {*self.holders}:
            self.comm.send(np.array([2, -1, -1]), server)
"""


def test_a_right_answer_need_not_look_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KEY_SPACE + EXCHANGE)
    result = grade(on(LAB, 3, 4), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


def test_what_is_written_counts_though_the_rest_is_not(tmp_path: Path) -> None:
    handed_out = (LAB.folder / LAB.file).read_text()
    exchange = handed_out[handed_out.index("class Store") :]
    (tmp_path / "half.py").write_text("from __future__ import annotations\n" + KEY_SPACE + exchange)
    results = by_name(grade(on(LAB, 2), tmp_path / "half.py", limit_s=LIMIT_S, ours=True))
    assert [name for name, result in results.items() if result.passed] == [
        *("ranges", "same everywhere", "joining", "balance", "moving")
    ]
    assert results["store"].message == "not implemented yet: Store.__init__ in half.py"


@pytest.mark.parametrize(
    ("idle", "message"),
    [
        ("serve = idle", "rank 0 has returned; rank 1 waits in send (to rank 0)"),
        ("Client.end_round = idle", "deadlock: rank 0 waits in receive (from rank 1); rank 1 has returned"),
        ("Client.push = Client.pull = idle", "worker 1, clock 0: after the pull there is nothing at key 0"),
    ],
)
def test_a_side_that_does_nothing_is_named(tmp_path: Path, idle: str, message: str) -> None:
    (tmp_path / "idle.py").write_text(f"{KEY_SPACE}{EXCHANGE}\ndef idle(*arguments):\n    return 0\n\n{idle}\n")
    result = grade(on(LAB, 2, checks=("acknowledged",)), tmp_path / "idle.py", limit_s=LIMIT_S, ours=True).results[0]
    assert message in result.message
