"""An election among living processes: the bully's messages over MPI.

Time-outs are not needed here: MPI has agreed on the living processes, and reports it if one of them dies now.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from farandole.recovery.election.bully import Bully
from farandole.recovery.election.steps import Action, Message

KINDS = ("election", "answer", "coordinator")
NAP_S = 0.0005


def elect(mpi: MPI.Intracomm, members: Sequence[int]) -> int:
    """Return the leader by the bully election: the highest of `members`. Collective.

    Args:
        mpi: a communicator of these members, in order, for this alone; revoked or with a dead member it raises.
        members: their numbers, by the communicator's ranks.

    Cost: n(n − 1) messages of 8 bytes at most.
    """
    node = Bully(members[mpi.rank], members, answer_s=float("inf"))
    sent: list[MPI.Request] = []

    def carry_out(actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Message):
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
        else:
            time.sleep(NAP_S)
    # A member that has a leader still answers the others, until all have one. A late question makes it elect once
    # more, with the same result, for which it need not wait.
    leader = node.leader
    all_have_a_leader = mpi.Ibarrier()
    while not all_have_a_leader.Test():
        if mpi.Iprobe(MPI.ANY_SOURCE):
            receive()
    MPI.Request.Waitall(sent)
    return leader
