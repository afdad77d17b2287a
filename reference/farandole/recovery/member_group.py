"""The communicator of all members, workers and spares, and the calls by which it outlives ranks.

    revoke    interrupt every rank that waits in a call of it
    shrink    a new communicator of the ranks that live
    extend    a new communicator with one more process (`admission`)
    agree     a bitwise and over all ranks, which also works where some have died
    divide    communicators of the workers and of the spares, and an election if there is no coordinator

Ranks of a communicator change when it shrinks; a member's number stays. Revoke, shrink and agree are ULFM's
(User-Level Failure Mitigation; Bland et al., "Post-failure recovery of MPI communication capability", 2013).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from farandole.recovery.election.over_mpi import elect
from farandole.recovery.view import NOBODY, View
from farandole.runtime.communicator import ranks_within
from farandole.runtime.failure import PeerLost
from farandole.runtime.wait import LOST
from farandole.runtime.world import World

DISMISSED = 1  # tag


class MemberGroup:
    """One rank's handle of it.

    Attributes:
        mpi: the communicator.
        numbers: the member's number at each of its ranks.
    """

    def __init__(self, mpi: MPI.Intracomm, numbers: Sequence[int]) -> None:
        self.mpi, self.numbers = mpi, list(numbers)

    def revoke(self) -> None:
        """Interrupt every rank that waits in a call of it; only `shrink` and `agree` work afterwards."""
        self.mpi.Revoke()

    def shrink(self) -> None:
        """Continue without the dead ranks. Collective."""
        living = MPI.Intracomm(self.mpi.Shrink())
        self.numbers = [self.numbers[rank] for rank in ranks_within(living, self.mpi)]
        self.mpi = living

    def extend(self, mpi: MPI.Intracomm, number: int) -> None:
        """Continue with `mpi`, whose last rank is the joining process of that number."""
        self.mpi = mpi
        self.numbers.append(number)

    def agree(self, succeeded: bool) -> bool:
        """Return whether all ranks have succeeded, the same on all; False if a rank has died. Collective."""
        return agree(self.mpi, succeeded)

    def largest(self, *values: int) -> list[int]:
        """Return the largest of each value over all ranks. Collective."""
        largest = np.array(values, dtype=np.int64)
        self.mpi.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
        return [int(value) for value in largest]

    def divide(self, world: World, view: View) -> View:
        """Form communicators of the workers, in order of their slots, and of the spares. Collective.

        `world.comm` and `world.control` are then this rank's part.

        Returns:
            The view, with a coordinator: the elected worker where the former one has died.
        """
        slot = view.slot(world.rank)
        works = slot is not None
        part = MPI.Intracomm(self.mpi.Split(int(works), slot or 0))
        if view.coordinator not in view.workers:
            elected = elect(MPI.Intracomm(part.Dup()), view.workers) if works else NOBODY
            [coordinator] = self.largest(elected)  # the spares have to know it, too
            view = replace(view, coordinator=coordinator)
        control = MPI.Intracomm(part.Split(0, 0 if world.rank == view.coordinator else 1 + part.rank))
        members = [self.numbers[rank] for rank in ranks_within(part, self.mpi)]
        world.regroup(part, control, view.number, members)
        return view

    def dismiss(self, spares: Iterable[int]) -> list[int]:
        """Tell these spares that the training is over; return those that have died meanwhile."""
        dead = []
        for spare in spares:
            try:
                self.mpi.Send(bytearray(), self.numbers.index(spare), DISMISSED)
            except MPI.Exception:
                dead.append(spare)
        return dead

    def is_dismissed(self, workers: Sequence[int]) -> bool:
        """Return whether this rank, a spare, has been dismissed.

        Raises:
            PeerLost: one of the workers has died. Dead spares are ignored, as no rank depends on them yet.
        """
        try:
            if self.mpi.Iprobe(MPI.ANY_SOURCE, DISMISSED):
                self.mpi.Recv(bytearray(), MPI.ANY_SOURCE, DISMISSED)
                return True
        except MPI.Exception as error:
            if error.Get_error_class() not in LOST:
                raise
            if self.mpi.Is_revoked() or any(worker in self._dead() for worker in workers):
                raise PeerLost("found a rank dead") from error
            self.mpi.Ack_failed()
        return False

    def _dead(self) -> list[int]:
        """Return the members that have died, as far as this rank has detected it."""
        group = self.mpi.Get_failed()
        ranks = group.Translate_ranks(list(range(group.size)), self.mpi.Get_group())
        return [self.numbers[rank] for rank in ranks]


def agree(mpi: MPI.Intracomm, succeeded: bool) -> bool:
    """Return whether all ranks of `mpi` have succeeded, the same on all; False if a rank has died. Collective."""
    try:
        return bool(mpi.Agree(int(succeeded)))
    except MPI.Exception:
        return False
