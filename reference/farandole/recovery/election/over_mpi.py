"""An election among living processes: the state machines' messages over MPI, their timers by the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from farandole.recovery.election.bully import Bully
from farandole.recovery.election.steps import Action, Message, Timer

KINDS = ("election", "answer", "coordinator")
ANSWER_S = 1.0
NAP_S = 0.0005


def elect(mpi: MPI.Intracomm, members: Sequence[int]) -> int:
    """Who leads, by the bully election: the highest of `members`. Collective.

    Args:
        mpi: a communicator of these members, in their order, for nothing else; revoked or with a dead member it raises.
        members: their numbers; the own one is that at the communicator's rank.

    Cost: n(n − 1) messages of 8 bytes at most.
    """
    node = Bully(members[mpi.rank], members, answer_s=ANSWER_S)
    sent: list[MPI.Request] = []
    deadline: float | None = None

    def carry_out(actions: Sequence[Action]) -> None:
        nonlocal deadline
        for action in actions:
            if isinstance(action, Timer):
                deadline = None if action.seconds is None else time.monotonic() + action.seconds
            else:
                kind = np.array([KINDS.index(action.kind)])
                sent.append(mpi.Isend(kind, members.index(action.to)))

    def receive() -> None:
        status, kind = MPI.Status(), np.empty(1, dtype=np.int64)
        mpi.Recv(kind, MPI.ANY_SOURCE, status=status)
        carry_out(node.receive(Message(KINDS[int(kind[0])], members[status.Get_source()], node.number)))

    carry_out(node.start())
    while node.leader is None:
        if mpi.Iprobe(MPI.ANY_SOURCE):
            receive()
        elif deadline is not None and time.monotonic() > deadline:
            deadline = None
            carry_out(node.timeout())
        else:
            time.sleep(NAP_S)
    # Who has a leader still answers those that ask, until all have one.
    everybody = mpi.Ibarrier()
    while not everybody.Test():
        if mpi.Iprobe(MPI.ANY_SOURCE):
            receive()
    MPI.Request.Waitall(sent)
    return node.leader
