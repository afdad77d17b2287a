"""Membership update (成员更新): when a rank dies the others agree on the survivors, and continue.

Document 000's coordinator detects which nodes join, and if the coordinator itself dies the others choose another. Here
every survivor learns of a death by itself, from the call in which it waits. Then all do the same:

    revoke    interrupt the ranks that wait for a dead one, and those that have finished already
    shrink    agree on the ranks that live, in a communicator without the dead
    view      spares take the slots of dead workers, as long as there are spares (`view`)
    elect     if the coordinator has died (`election.bully`)
    divide    communicators for the workers and for the spares
    agree     that all this has succeeded on every rank; else try again

Where no spare is left for a slot, the coordinator may start a process (`--spawn`), while all train on without it. Once
it is ready the coordinator reports it, and in an update all members admit it as a spare (`admission`).

It needs an MPI whose processes outlive each other (`member_group`). Cost: some all-reduces of a few bytes, and the time
until the death is detected.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from mpi4py import MPI

from farandole.errors import PlainError, UsageError
from farandole.recovery.admission import NO_NEWS, READY, Admission
from farandole.recovery.member_group import MemberGroup, agree
from farandole.recovery.view import View
from farandole.runtime import rank
from farandole.runtime.failure import PeerLost
from farandole.runtime.joining import Told
from farandole.runtime.world import World

NAP_S = 0.001
FAREWELL_S = 10.0  # how long, after the training, the coordinator waits for a process that is just starting


class NoWorkerLeft(PlainError):
    """Every worker has died."""


class Membership:
    """One rank's knowledge of the members. Made, and changed, by all living ranks together.

    Args:
        spares: number of ranks, the last ones, that wait at first.
        starts: number of processes that may be started where no spare is left.
        greeting, welcome: return what a joining process is told when it starts, and when it is admitted; called on
            the coordinator.

    Attributes:
        view: the workers and the spares; the same on all members.
        lost: the members that were missing in the last update.
        joined: the processes that were admitted in the last update.
        spawned: the process that was requested at its end, if any.
        was_requested: whether it made a slot for a request from outside.
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
        self.lost: list[int] = []
        self.joined: list[int] = []
        self.spawned: list[int] = []
        self.was_requested = False
        self._admission = Admission(greeting, welcome, world.joining)
        self._before = self.view  # when the update began
        self._never_joined: list[int] = []  # in this update: processes that were requested and will not come
        self._concluded = False  # whether this rank has taken part in the agreement that the training is over
        self._group = MemberGroup(MPI.Intracomm(world.control.Dup()), self.view.members)
        world.outlived = True
        if not world.joining:
            self._form()

    @property
    def slot(self) -> int | None:
        """Return this rank's slot; None while it waits."""
        return self.view.slot(self.world.rank)

    @property
    def leads(self) -> bool:
        return self.world.rank == self.view.coordinator

    @property
    def has_news(self) -> bool:
        """Whether the requested process is ready, or lost: then an `update` is due. Only the coordinator knows."""
        return self._admission.has_news

    @property
    def answering_rank(self) -> int:
        """After an update for a request from outside: the member that takes the new slot, a spare or a new process."""
        return self.spawned[0] if self.spawned else self.view.workers[-1]

    def update(self, more: bool = False, requested: bool = False) -> None:
        """Agree on the members left, and form their groups: `world.comm` and `world.control` are of the workers left.

        Every living rank calls it once it has learned of a death.

        Args:
            more: add a worker, if there is a spare or a process may be started; it counts if any rank wants it.
            requested: as `more`, but where no spare is left a process is spawned in any case.

        Raises:
            NoWorkerLeft: no worker lives.
        """
        self._revoke()
        with self.world.comm.waiting("membership update", -1):
            if self.slot is not None and not self._concluded:
                self._agree_on_the_end(over=False)
            self._concluded = False
            self._before, self._never_joined, self.joined = self.view, [], []
            self._try_until_all_succeed(more, requested)

    def wait(self) -> None:
        """As a spare, wait until the training is over.

        Raises:
            PeerLost: a rank has died: `update`.
            Invited: this process, which joins later, may `enter`.
        """
        joining = self.world.joining
        if joining and not joining.inside:
            self._admission.wait_for_invitation()
            return
        while not self._group.is_dismissed(self.view.workers):
            time.sleep(NAP_S)

    def enter(self) -> Told:
        """As a joining process, take part from now on; return the coordinator's welcome."""
        with self.world.comm.waiting("entrance", -1):
            everyone, told = self._admission.enter()
            self._group = MemberGroup(everyone, told["numbers"])
            self._before = View.from_json(told["view"])
            self.joined = [self.world.rank]
            self._try_until_all_succeed(more=False, requested=False)
        return dict(told["welcome"])

    def conclude(self) -> None:
        """Agree that the training is over, and dismiss the spares. Called by every worker.

        Raises:
            PeerLost: a worker has died before the training was over for all, and the others may need this one.
        """
        with self.world.comm.waiting("end of the training", -1):
            over = self._agree_on_the_end(over=True)
        if not over:
            raise PeerLost("found that the training is not over for all")
        if self.leads:
            rank.departed(self._group.dismiss(self.view.spares))

    def dismiss_spawned(self) -> None:
        """The training is over: dismiss a process that was requested and has not joined. Called by every worker."""
        self._admission.dismiss_spawned(FAREWELL_S)

    def _try_until_all_succeed(self, more: bool, requested: bool) -> None:
        """Then, if a slot is still free, the coordinator requests a process."""
        while not self._attempt(more, requested):
            pass
        self.spawned = []
        if self.view.lacks_a_worker:
            self.spawned = [self.view.following]
            self.view = self.view.spawning()
            if self.leads:
                self._admission.spawn(self.spawned[0])

    def _attempt(self, more: bool, requested: bool) -> bool:
        """Try once; return False if another rank has died meanwhile, or a process has been admitted or given up."""
        self._revoke()
        self._group.shrink()
        missing = [member for member in self._before.members if member not in self._group.numbers]
        if self._before.spawned is not None and self._before.coordinator in missing:
            missing.append(self._before.spawned)  # only the coordinator knew how to reach it
        self.lost = [*missing, *self._never_joined]
        self.view = self._before.without(missing)
        if not self.view.workers:
            raise NoWorkerLeft("every worker has died")
        if self.view.spawned is not None and not self._have_no_news(self.view.spawned):
            return False
        formed = True
        try:
            one_more, one_requested = self._group.largest(more, requested)
            self.was_requested = bool(one_requested)
            self.view = self.view.enlarged(one_more, self.was_requested)
            self._form()
        except (MPI.Exception, PeerLost):
            formed = False
            self._group.revoke()  # other ranks may still wait for the dead one
        if self.leads:
            rank.departed(self.lost)
        return self._group.agree(formed)

    def _have_no_news(self, number: int) -> bool:
        """Return whether there is no news of the requested process. If there is, admit it or give it up."""
        news = self._admission.agree_on_news(self._group.mpi)
        if news is None or news == NO_NEWS:
            return news == NO_NEWS
        coordinator = self._group.numbers.index(self._before.coordinator)
        everyone = self._admission.admit(self._group.mpi, coordinator) if news == READY else None
        if everyone is not None:
            self._group.extend(everyone, number)
            self._before = self._before.with_spawned()
            self.joined.append(number)
            self._admission.welcome({"numbers": self._group.numbers, "view": asdict(self._before)})
        else:
            self._before = self._before.without_spawned()
            self._never_joined.append(number)
            self._admission.give_up()
        return False

    def _form(self) -> None:
        """Form the groups of workers and spares, and elect a coordinator if there is none."""
        self.view = self._group.divide(self.world, self.view)

    def _revoke(self) -> None:
        self.world.comm.revoke()
        self.world.control.Revoke()
        self._group.revoke()

    def _agree_on_the_end(self, *, over: bool) -> bool:
        """Return whether the training is over for all workers.

        A revocation does not interrupt an agreement: a rank that was interrupted takes part as well, before it shrinks.
        """
        self._concluded = over
        return agree(self.world.control, over)


def check(ranks: int, spares: int) -> None:
    """Refuse a group without a worker, and ranks that do not outlive each other.

    Raises:
        UsageError: with what would fit.
    """
    if ranks > 1 and not rank.outlive_each_other():
        raise UsageError(
            "the ranks of this job do not outlive each other: start it with `mpirun --with-ft ulfm` of Open MPI 5 "
            "(`farandole run` does where it can), or use the scenario restart, which needs no such MPI"
        )
    if spares >= ranks:
        raise UsageError(f"--spares {spares}: of {ranks} rank(s) at least one has to work; give {ranks - 1} or fewer")
