"""Membership update (成员更新): when a rank dies the others agree on who is left, and go on.

Document 000's centre notices who joins, and if the centre itself dies the others choose another. Here
every survivor learns of a death by itself, from the call in which it waits, and then all do the same:

    revoke    wake those that wait for somebody who will not come, and tell those that are done already
    shrink    agree on who lives, in a communicator without the dead
    view      spares take the places of the dead, as far as there are any (`view`)
    elect     if the dead one was the centre (`election.bully`)
    split     communicators for the workers and for the spares
    agree     that all this has come to its end everywhere; else once more

It needs an MPI whose processes outlive each other: revoke, shrink and agree are ULFM's (User-Level
Failure Mitigation; Bland et al., "Post-failure recovery of MPI communication capability", 2013). Cost:
some all-reduces of a few bytes, and the time until the death is noticed.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from farandole.errors import PlainError, UsageError
from farandole.recovery.election.over_mpi import elect
from farandole.recovery.view import View
from farandole.runtime import rank
from farandole.runtime.communicator import LOST
from farandole.runtime.failure import PeerLost
from farandole.runtime.world import World

DISMISSED = 1  # tag
NOBODY = -1
NAP_S = 0.001


class NobodyLeft(PlainError):
    """Every worker has died."""


class Membership:
    """One rank's knowledge of who takes part. Made, and changed, by all living ranks together.

    Args:
        spares: how many ranks, the last ones, wait at first.

    Attributes:
        view: who works and who waits; the same on all members.
        changes: how long each update has taken, in seconds.
        lost: who was missing in the last one.
    """

    def __init__(self, world: World, spares: int) -> None:
        self.world = world
        self.view = View.first(world.size, spares)
        self.changes: list[float] = []
        self.lost: list[int] = []
        self._asked = False  # whether the others know already what this rank would say in an agreement
        self._everyone = MPI.Intracomm(world.control.Dup())
        world.outlived = True
        self._form()

    @property
    def place(self) -> int | None:
        """Where this rank works; None while it waits."""
        return self.view.place(self.world.rank)

    @property
    def leads(self) -> bool:
        return self.world.rank == self.view.centre

    def update(self, more: int = 0) -> None:
        """Agree on who is left, and form the groups anew: `world.comm` and `world.control` are of the workers left.

        Every living rank calls it once it has learned of a death, however it has.

        Args:
            more: how many spares are to work beside those that are left; the largest wish of any rank counts.

        Raises:
            NobodyLeft: no worker lives.
        """
        start = time.perf_counter()
        before = self.view
        self._revoke()
        with self.world.comm.waiting("membership update", -1):
            if self.place is not None and not self._asked:
                self._agree(over=False)
            self._asked = False
            while not self._attempt(before, more):
                pass
        self.changes.append(time.perf_counter() - start)

    def wait(self) -> bool:
        """As a spare, wait until needed or dismissed.

        Returns:
            False if dismissed.

        Raises:
            PeerLost: somebody has died: `update`.
        """
        while True:
            try:
                if self._everyone.Iprobe(MPI.ANY_SOURCE, DISMISSED):
                    self._everyone.Recv(bytearray(), MPI.ANY_SOURCE, DISMISSED)
                    return False
            except MPI.Exception as error:
                if error.Get_error_class() not in LOST:
                    raise
                if self._everyone.Is_revoked() or any(worker in self._dead() for worker in self.view.workers):
                    raise PeerLost("found a rank dead") from error
                self._everyone.Ack_failed()  # only spares, whom nobody misses yet
            time.sleep(NAP_S)

    def conclude(self) -> None:
        """The training is over: agree on it, and let the spares go. Called by every worker.

        Raises:
            PeerLost: a worker has died before it was over for all, and the others may need those that are done.
        """
        with self.world.comm.waiting("end of the training", -1):
            over = self._agree(over=True)
        if not over:
            raise PeerLost("found that the training is not over for all")
        if self.leads:
            for spare in self.view.spares:
                try:
                    self._everyone.Send(bytearray(), self._living().index(spare), DISMISSED)
                except MPI.Exception:  # died while it waited
                    rank.departed([spare])

    def _attempt(self, before: View, more: int) -> bool:
        """One try; False if another rank has died meanwhile."""
        self._revoke()
        self._everyone = MPI.Intracomm(self._everyone.Shrink())
        self.lost = self._lost(before)
        self.view = before.without(self.lost)
        if not self.view.workers:
            raise NobodyLeft("every worker has died")
        formed = True
        try:
            wished = np.array([more])
            self._everyone.Allreduce(MPI.IN_PLACE, wished, MPI.MAX)
            self.view = self.view.enlarged(int(wished[0]))
            self._form()
        except (MPI.Exception, PeerLost):
            formed = False
            self._everyone.Revoke()  # others may still wait for whoever has died
        if self.leads:
            rank.departed(self.lost)
        try:
            return bool(self._everyone.Agree(int(formed)))
        except MPI.Exception:
            return False

    def _revoke(self) -> None:
        self.world.comm.revoke()
        self.world.control.Revoke()
        self._everyone.Revoke()

    def _agree(self, *, over: bool) -> bool:
        """Whether the training is over for all workers.

        A revocation does not wake who waits here: so who has been interrupted takes part, too, before he shrinks.
        """
        self._asked = over
        try:
            return bool(self.world.control.Agree(int(over)))
        except MPI.Exception:  # a worker has died; the same on all of them
            return False

    def _form(self) -> None:
        """Communicators of the workers, in order of their places, and of the spares; a centre if there is none."""
        place = self.place
        working = place is not None
        group = MPI.Intracomm(self._everyone.Split(int(working), place or 0))
        if self.view.centre not in self.view.workers:
            leader = np.array([elect(MPI.Intracomm(group.Dup()), self.view.workers) if working else NOBODY])
            self._everyone.Allreduce(MPI.IN_PLACE, leader, MPI.MAX)  # the spares have to know, too
            self.view = replace(self.view, centre=int(leader[0]))
        control = MPI.Intracomm(group.Split(0, 0 if self.leads else 1 + group.rank))
        self.world.regroup(group, control, self.view.number)

    def _lost(self, before: View) -> list[int]:
        """Who of the members is not in the communicator any more."""
        return [member for member in before.members if member not in self._living()]

    def _dead(self) -> list[int]:
        """Who has died, as far as this rank has noticed."""
        group = self._everyone.Get_failed()
        return list(group.Translate_ranks(list(range(group.size)), MPI.COMM_WORLD.Get_group()))

    def _living(self) -> list[int]:
        """The ranks in `_everyone`, in its order."""
        group = self._everyone.Get_group()
        return list(group.Translate_ranks(list(range(group.size)), MPI.COMM_WORLD.Get_group()))


def check(ranks: int, spares: int) -> None:
    """Refuse what cannot be: no worker, or ranks that do not outlive each other.

    Raises:
        UsageError: saying what would fit.
    """
    if ranks > 1 and not rank.outlive_each_other():
        raise UsageError(
            "the ranks of this job do not outlive each other: start it with `mpirun --with-ft ulfm` of Open MPI 5 "
            "(`farandole run` does where it can), or use the scenario restart, which needs no such MPI"
        )
    if spares >= ranks:
        raise UsageError(f"--spares {spares}: of {ranks} rank(s) at least one has to work; give {ranks - 1} or fewer")
