"""The simulated ranks of lab 12: which detect a death, which get a result, and what stays intact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from farandole_tools.lab.simulated_ranks import Call, Death, SimulatedRanks, Stuck
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator

Program = Callable[[UlfmCommunicator], object]


def run(program: Program, size: int, *deaths: Death, all_notice: bool = False) -> dict[int, Any]:
    """Return what `program` returns on each rank, or the PeerLost that it raises; nothing for the dead."""
    found: dict[int, Any] = {}

    def one(comm: UlfmCommunicator) -> None:
        rank = comm.rank
        try:
            found[rank] = program(comm)
        except PeerLost as error:
            comm.revoke()
            found[rank] = str(error)

    SimulatedRanks(size, deaths, all_notice).run(one)
    return found


def summed(comm: UlfmCommunicator) -> list[float]:
    array = np.array([comm.rank + 1.0, 10.0])
    comm.all_reduce(array)
    return list(array)


def test_calls_that_nothing_disturbs() -> None:
    def program(comm: UlfmCommunicator) -> object:
        array = np.full(3, comm.rank, dtype=float)
        comm.broadcast(array, 2)
        new = comm.shrink()
        return summed(comm), comm.all_gather(comm.rank * 5), list(array), comm.agree(True), new.rank, new.size

    assert run(program, 3) == {rank: ([6, 30], [0, 5, 10], [2, 2, 2], True, rank, 3) for rank in range(3)}
    assert run(lambda comm: comm.agree(comm.rank != 1), 3) == dict.fromkeys(range(3), False)


def test_a_death_is_noticed_by_one_and_told_to_the_others_by_revoking() -> None:
    revoked = "the communicator has been revoked, in all_reduce"
    found = "found rank 1 dead, in all_reduce"
    assert run(summed, 4, Death(1, 0)) == {0: revoked, 2: found, 3: revoked}
    assert run(summed, 4, Death(1, 0), all_notice=True)[2] == found
    with pytest.raises(
        Stuck,
        match="deadlock: ranks 0 and 3 wait in all_reduce; rank 1 is dead; rank 2 has returned, and no rank revokes",
    ):
        SimulatedRanks(4, [Death(1, 0)]).run(tolerant)


def tolerant(comm: UlfmCommunicator) -> None:
    try:
        summed(comm)
    except PeerLost:
        return


def test_who_dies_within_a_call_has_given_its_part_and_some_get_the_result() -> None:
    found = run(summed, 3, Death(0, 0, frozenset({2})))
    assert found == {1: "found rank 0 dead, in all_reduce", 2: [6, 30]}


def test_an_array_in_a_call_that_failed_is_spoiled() -> None:
    arrays = {}

    def program(comm: UlfmCommunicator) -> None:
        array = arrays[comm.rank] = np.full(2, comm.rank + 1.0)
        comm.broadcast(array, 0)

    run(program, 3, Death(2, 0, frozenset({0})))
    assert [list(arrays[rank]) for rank in range(2)] == [[1, 1], [1, 2]]


def test_agree_and_shrink_are_whole_whoever_dies() -> None:
    assert run(lambda comm: comm.agree(True), 3, Death(1, 0)) == {0: False, 2: False}
    assert run(lambda comm: comm.agree(True), 3, Death(1, 0, frozenset())) == {0: True, 2: True}
    assert run(lambda comm: comm.shrink().size, 3, Death(1, 0)) == {0: 2, 2: 2}
    assert run(lambda comm: comm.shrink().size, 3, Death(1, 0, frozenset())) == {0: 3, 2: 3}


def test_a_revoked_communicator_is_good_for_agree_and_shrink_alone() -> None:
    def program(comm: UlfmCommunicator) -> object:
        if comm.rank == 0:
            comm.revoke()
        comm.agree(False)
        with pytest.raises(PeerLost, match="revoked, in all_gather"):
            comm.all_gather(1)
        return comm.shrink().all_gather(comm.rank)

    assert run(program, 3) == {rank: [0, 1, 2] for rank in range(3)}


def test_the_calls_are_written_down() -> None:
    ranks = SimulatedRanks(2, [Death(1, 1)], step_of=lambda rank: 7)
    ranks.run(lambda comm: [comm.agree(True), comm.shrink()])
    made = [(0, 0, "agree"), (1, 0, "agree"), (0, 1, "shrink"), (1, 1, "shrink")]
    assert ranks.calls == [Call(*each, 7) for each in made]
    assert ranks.dead == {1}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda comm: comm.agree(True) if comm.rank else comm.shrink(), "rank 0 waits in shrink; rank 1 waits in agr"),
        (lambda comm: comm.rank or comm.all_gather(1), "deadlock: rank 0 waits in all_gather; rank 1 has returned"),
        (lambda comm: summed(comm) if comm.rank else comm.all_gather(1), "rank 0 is in all_gather, rank 1 in all_redu"),
        (lambda comm: comm.broadcast(np.ones(1), comm.rank), "rank 0 is in broadcast from rank 0, rank 1 in broadcas"),
        (lambda comm: comm.all_reduce(np.ones(comm.rank + 1)), r"the arrays in all_reduce have the lengths \[1, 2\]"),
        (lambda comm: [comm.revoke() for _ in range(1000)], "rank 0 has made 400 calls and is not done; .*revoke"),
    ],
)
def test_what_never_ends_is_told(program: Program, message: str) -> None:
    with pytest.raises(Stuck, match=message):
        SimulatedRanks(2).run(program)


def test_a_killed_rank_may_not_go_on() -> None:
    def program(comm: UlfmCommunicator) -> None:
        while True:
            try:
                comm.all_gather(0)
                break
            except BaseException:  # of which there is one too many
                pass

    with pytest.raises(Stuck, match="rank 1 has been killed, and its code goes on with all_gather"):
        SimulatedRanks(2, [Death(1, 0)]).run(program)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda comm: comm.all_reduce([1.0]), "all_reduce takes contiguous numpy arrays of float64, not list"),
        (lambda comm: comm.all_reduce(np.ones(2, dtype=int)), "float64, not int64 array"),
        (lambda comm: comm.all_gather("1"), "all_gather takes a whole number, not str"),
        (lambda comm: comm.broadcast(np.ones(2), 2), "there is no rank 2; the ranks are 0 to 1"),
    ],
)
def test_wrong_use_is_told(program: Program, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        SimulatedRanks(2).run(program)
