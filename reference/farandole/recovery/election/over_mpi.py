"""An election among living processes: the bully's messages over MPI.

Its time-outs play no part here: MPI has agreed on who lives, and if one of them dies now it says so.
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
    """Who leads, by the bully election: the highest of `members`. Collective.

    Args:
        mpi: a communicator of these members, in their order, for nothing else; revoked or with a dead member it raises.
        members: their numbers; the own one is that at the communicator's rank.

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
    # Who has a leader still answers those that ask, until all have one. Being asked it would elect once more,
    # with the same result, which need not be waited for.
    leader = node.leader
    everybody = mpi.Ibarrier()
    while not everybody.Test():
        if mpi.Iprobe(MPI.ANY_SOURCE):
            receive()
    MPI.Request.Waitall(sent)
    return leader
