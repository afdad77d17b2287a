"""Membership update (成员更新): when a rank dies the others agree on who is left, and go on.

Document 000's coordinator notices who joins, and if the coordinator itself dies the others choose another. Here
every survivor learns of a death by itself, from the call in which it waits, and then all do the same:

    revoke    wake those that wait for somebody who will not come, and tell those that are done already
    shrink    agree on who lives, in a communicator without the dead
    view      spares take the slots of the dead, as far as there are any (`view`)
    elect     if the dead one was the coordinator (`election.bully`)
    split     communicators for the workers and for the spares
    agree     that all this has come to its end everywhere; else once more

Where no spare is left for a slot, the coordinator may start a process (`--spawn`), while all go on without. Once that
is ready the coordinator says so, and in an update all let it in (`runtime.joining`): then it is as a spare.

It needs an MPI whose processes outlive each other: revoke, shrink and agree are ULFM's (User-Level
Failure Mitigation; Bland et al., "Post-failure recovery of MPI communication capability", 2013). Cost:
some all-reduces of a few bytes, and the time until the death is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
from mpi4py import MPI

from farandole.errors import PlainError, UsageError
from farandole.recovery.admission import AT_THE_DOOR, NO_NEWS, Admission
from farandole.recovery.election.over_mpi import elect
from farandole.recovery.view import NOBODY, View
from farandole.runtime import rank
from farandole.runtime.communicator import LOST, ranks_within
from farandole.runtime.failure import PeerLost
from farandole.runtime.joining import Told
from farandole.runtime.world import World

DISMISSED = 1  # tag
NAP_S = 0.001
FAREWELL_S = 10.0  # how long, all work being done, somebody is waited for who is just starting


class NobodyLeft(PlainError):
    """Every worker has died."""


class Membership:
    """One rank's knowledge of who takes part. Made, and changed, by all living ranks together.

    Args:
        spares: how many ranks, the last ones, wait at first.
        starts: how many processes may be started where no spare is left.
        greeting, welcome: return what such a process is told when it begins, and when it is let in; called on the
            coordinator.

    Attributes:
        view: who works and who waits; the same on all members.
        changes: how long each update has taken, in seconds.
        lost: who was missing in the last one.
        joined: who was let in in the last one.
        sent_for: who was sent for at its end.
        was_asked: whether it made a slot that was asked for.
    """

    def __init__(
        self,
        world: World,
        spares: int,
        starts: int = 0,
        greeting: Callable[[], Told] = dict,
        welcome: Callable[[], Told] = dict,
    ) -> None:
        self.world = world
        self.view = View.outside(world.rank) if world.joining else View.first(world.size, spares, starts)
        self.changes: list[float] = []
        self.lost: list[int] = []
        self.joined: list[int] = []
        self.sent_for: list[int] = []
        self.was_asked = False
        self._admission = Admission(greeting, welcome, world.joining)
        self._before = self.view  # when the update began
        self._missed: list[int] = []  # in this update: who has been sent for and will not come
        self._asked = False  # whether the others know already what this rank would say in an agreement
        self._everyone = MPI.Intracomm(world.control.Dup())
        self._numbers = list(self.view.members)  # of each rank in `_everyone`
        world.outlived = True
        if not world.joining:
            self._form()

    @property
    def slot(self) -> int | None:
        """Where this rank works; None while it waits."""
        return self.view.slot(self.world.rank)

    @property
    def leads(self) -> bool:
        return self.world.rank == self.view.coordinator

    @property
    def can_grow(self) -> bool:
        """Whether somebody waits to work, or can be started."""
        return bool(self.view.spares) or self.view.starts > 0

    @property
    def has_news(self) -> bool:
        """Whether who was sent for is ready, or lost: then an `update` is due. Only the coordinator knows."""
        return self._admission.has_news

    @property
    def who_answers(self) -> int:
        """After an update that was asked for: who takes the new slot, be it a spare or the process sent for."""
        return self.sent_for[0] if self.sent_for else self.view.workers[-1]

    def update(self, more: bool = False, asked: bool = False) -> None:
        """Agree on who is left, and form the groups anew: `world.comm` and `world.control` are of the workers left.

        Every living rank calls it once it has learned of a death, however it has.

        Args:
            more: one more is to work beside those that are left, if somebody can; it counts if any rank says so.
            asked: likewise, but where no spare is left a process is started in any case.

        Raises:
            NobodyLeft: no worker lives.
        """
        start = time.perf_counter()
        self._revoke()
        with self.world.comm.waiting("membership update", -1):
            if self.slot is not None and not self._asked:
                self._agree(over=False)
            self._asked = False
            self._before, self._missed, self.joined = self.view, [], []
            self._settle(more, asked)
        self.changes.append(time.perf_counter() - start)

    def wait(self) -> bool:
        """As a spare, wait until needed or dismissed.

        Returns:
            False if dismissed.

        Raises:
            PeerLost: somebody has died: `update`.
            Invited: having come later, this process may `enter`.
        """
        joining = self.world.joining
        if joining and not joining.inside:
            self._admission.wait_for_invitation()
            return False
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

    def enter(self) -> Told:
        """Having come later, take part from now on; returns what the coordinator says at that."""
        with self.world.comm.waiting("entrance", -1):
            self._everyone, told = self._admission.enter()
            self._numbers = told["numbers"]
            view = told["view"]
            self._before = View(**view | {"workers": tuple(view["workers"]), "spares": tuple(view["spares"])})
            self.joined = [self.world.rank]
            self._settle(more=False, asked=False)
        welcome: Told = told["welcome"]
        return welcome

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
                    self._everyone.Send(bytearray(), self._numbers.index(spare), DISMISSED)
                except MPI.Exception:  # died while it waited
                    rank.departed([spare])

    def see_off(self) -> None:
        """All is over: whoever has been sent for and has not joined is told so. Called by every worker."""
        self._admission.see_off(FAREWELL_S)

    def _settle(self, more: bool, asked: bool) -> None:
        """Try until all have succeeded; then, if a slot is free all the same, the coordinator sends for somebody."""
        while not self._attempt(more, asked):
            pass
        self.sent_for = []
        if self.view.lacks_a_worker:
            self.sent_for = [self.view.following]
            self.view = self.view.sending()
            if self.leads:
                self._admission.send_for(self.sent_for[0])

    def _attempt(self, more: bool, asked: bool) -> bool:
        """One try; False if another rank has died meanwhile, or somebody has come."""
        self._revoke()
        self._shrink()
        missing = [member for member in self._before.members if member not in self._numbers]
        if self._before.sent_for is not None and self._before.coordinator in missing:
            missing.append(self._before.sent_for)  # nobody knows it now
        self.lost = [*missing, *self._missed]
        self.view = self._before.without(missing)
        if not self.view.workers:
            raise NobodyLeft("every worker has died")
        if self.view.sent_for is not None and not self._all_have_heard(self.view.sent_for):
            return False
        formed = True
        try:
            wished = np.array([more, asked], dtype=np.int64)
            self._everyone.Allreduce(MPI.IN_PLACE, wished, MPI.MAX)
            self.was_asked = bool(wished[1])
            self.view = self.view.enlarged(int(wished[0]), self.was_asked)
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

    def _all_have_heard(self, number: int) -> bool:
        """Whether there is no news of it. If there is, it is let in now, or given up, and the next try comes after."""
        news = self._admission.agree_on_news(self._everyone)
        if news is None or news == NO_NEWS:
            return news == NO_NEWS
        everyone = None
        if news == AT_THE_DOOR:
            everyone = self._admission.admit(self._everyone, self._numbers.index(self._before.coordinator))
        if everyone is not None:
            self._everyone = everyone
            self._numbers.append(number)
            self._before = self._before.with_the_one_sent_for()
            self.joined.append(number)
            self._admission.welcome({"numbers": self._numbers, "view": asdict(self._before)})
        else:
            self._before = self._before.without_the_one_sent_for()
            self._missed.append(number)
            self._admission.give_up()
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
        """Communicators of the workers, in order of their slots, and of the spares; a coordinator if there is none."""
        slot = self.slot
        working = slot is not None
        group = MPI.Intracomm(self._everyone.Split(int(working), slot or 0))
        if self.view.coordinator not in self.view.workers:
            leader = np.array([elect(MPI.Intracomm(group.Dup()), self.view.workers) if working else NOBODY])
            self._everyone.Allreduce(MPI.IN_PLACE, leader, MPI.MAX)  # the spares have to know, too
            self.view = replace(self.view, coordinator=int(leader[0]))
        control = MPI.Intracomm(group.Split(0, 0 if self.leads else 1 + group.rank))
        members = [self._numbers[slot] for slot in ranks_within(group, self._everyone)]
        self.world.regroup(group, control, self.view.number, members)

    def _shrink(self) -> None:
        """Go on without the dead; the others keep their numbers."""
        living = MPI.Intracomm(self._everyone.Shrink())
        self._numbers = [self._numbers[slot] for slot in ranks_within(living, self._everyone)]
        self._everyone = living

    def _dead(self) -> list[int]:
        """Who has died, as far as this rank has noticed."""
        group = self._everyone.Get_failed()
        slots = group.Translate_ranks(list(range(group.size)), self._everyone.Get_group())
        return [self._numbers[slot] for slot in slots]


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
