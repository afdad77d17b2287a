"""The end of a training in which ranks may die: the live ranks agree on who they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from mpi4py import MPI

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.recovery.heartbeat import Heart
from farandole.runtime.communicator import ranks_within
from farandole.runtime.world import World


class Survivor(Protocol):
    """Is notified of failures where the training continues without the dead ranks; `reports.Reports` is one."""

    def on_failure(self, replication: ChainReplication) -> None:
        """On the manager: ranks have died, or this rank has become the manager because the previous one has."""

    def on_hang(self, rank: int, step: int) -> None:
        """On every rank, from another thread: this rank hangs, and is about to be killed."""


def regroup(world: World, replication: ChainReplication, survivor: Survivor, heart: Heart) -> None:
    """Form the communicators of the live ranks; the manager is the first of the control group. Collective.

    As in `recovery.membership`, which cites the source: shrink, form the groups, agree that all ranks have come this
    far; if not, repeat. Cost: four collective calls of a few bytes, and as many for each rank that dies meanwhile.
    """
    with world.comm.waiting("the others, at the end", -1):
        left = world.control
        formed = False
        while not formed:
            left = MPI.Intracomm(left.Shrink())
            replication.lost |= set(range(world.size)) - set(ranks_within(left, MPI.COMM_WORLD))
            leads = world.rank == replication.manager
            try:
                workers = MPI.Intracomm(left.Split(0, world.rank))
                control = MPI.Intracomm(left.Split(0, -1 if leads else world.rank))
                formed = True
            except MPI.Exception:
                left.Revoke()  # other ranks may still wait for the dead one
            try:
                formed = bool(left.Agree(int(formed)))
            except MPI.Exception:  # a rank has died; every live rank gets this error
                formed = False
        heart.stop()  # on all ranks, before one of them has more to do than the others
        if replication.lost:
            if leads:
                survivor.on_failure(replication)
            world.regroup(workers, control, number=1)


def note_excluded(workers: Sequence[int], silence_s: float) -> None:
    """Print which workers the manager has declared dead because they sent nothing: the result is not the usual one."""
    for worker in workers:
        print(
            f"farandole: rank {worker} sent nothing for {silence_s:g} s (--hang-after); the others went on without it, "
            "and the result differs from that of all workers",
            file=sys.stderr,
            flush=True,
        )
