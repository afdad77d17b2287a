"""Fault-tolerant training: the loop of `protected_training`, and the recovery when a rank dies or joins.

    wait       as a spare, or as a joining process
    train      take step after step, until all are done or a rank is found dead
    update     the membership (`membership`)
    restore    continue from the same step as all others; then train again

What is trained, and what is kept of it, are the loop's `Trainable` and `Protection`.
"""

from __future__ import annotations

from mpi4py import MPI

from farandole.recovery import heartbeat, join_request, membership
from farandole.recovery.admission import Invited
from farandole.recovery.events import What
from farandole.recovery.heartbeat import Heart
from farandole.recovery.membership import Membership
from farandole.recovery.options import FaultTolerantOptions
from farandole.recovery.protected_training import MembersChange, ProtectedSteps, ProtectedTraining
from farandole.recovery.protection import NOT_STARTED
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.failure import PeerLost
from farandole.runtime.faults import WITH_DEATHS
from farandole.runtime.joining import Told
from farandole.runtime.record import Summary
from farandole.runtime.wait import LOST
from farandole.runtime.world import World


def check(world: World, options: FaultTolerantOptions) -> None:
    """Refuse what no training can do whose ranks outlive each other.

    Raises:
        UsageError: faults of messages, no rank that works, an MPI without ULFM, a `--hang-after` that never expires.
    """
    options.refuse_resending(WITH_DEATHS)
    membership.check(world.size, options.spares)
    heartbeat.check(options.hang_after, options.wait_timeout)


def form_members(record: TrainingRecord, options: FaultTolerantOptions) -> tuple[Heart, Membership]:
    """Return this rank's heartbeat, which is not beating yet, and its membership. Made by all ranks together.

    From now on `world.comm` is of the workers, or of the spares.
    """
    world = record.world

    def report_silent(rank: int, step: int) -> None:
        record.event_log.write("noticed", rank, step, "silent")

    def tell_joining_process() -> Told:
        return {
            "size": world.size,
            "local_size": world.local_size,
            "cards": world.place.scope,
            "folder": str(record.folder.resolve()),
            "secret": heart.secret,
        }

    secret = world.joining.greeting["secret"] if world.joining else None
    heart = Heart(world, options.hang_after, options.wait_timeout, report_silent, secret)
    starts = options.joining_at_most
    return heart, Membership(world, options.spares, starts, tell_joining_process, lambda: record.recorder.clock)


class FaultTolerantSteps:
    """One member's steps, as a worker or as a spare. The caller calls `enter`, and `recover` where that fails.

    Args:
        heart, membership: as `form_members` makes them.
    """

    def __init__(self, heart: Heart, membership: Membership, training: ProtectedSteps) -> None:
        self.heart, self.membership, self.training = heart, membership, training
        self.record, self.world = training.record, training.record.world
        self.training.step = 0 if membership.slot is not None else NOT_STARTED
        self._has_begun = False
        self._is_restored = True  # nothing to restore at first

    def enter(self) -> bool:
        """Be ready to take steps, as all workers are; as a spare, wait until it is needed.

        Returns:
            False: the training is over, and this spare was not needed.
        """
        if not self._has_begun:
            self._has_begun = True  # also if a rank dies in it
            self._begin()
        if self.membership.slot is None:
            with self.heart.resting():
                self.membership.wait()
            return False
        if not self._is_restored:
            self._restore()
            self._is_restored = True
        return True

    def recover(self, cause: PeerLost | MPI.Exception | MembersChange | Invited) -> None:
        """Agree on the members with all that are left; then `enter` again.

        Raises:
            MPI.Exception: it is not about a lost rank.
        """
        if isinstance(cause, MembersChange):
            if cause.more or cause.requested:
                self._write("enlarged", self.world.rank)
            self.membership.update(cause.more, cause.requested)
        elif isinstance(cause, Invited):
            self._join()
        else:
            self._report(cause)
            self.membership.update()
        self._log_changes()
        self.heart.forget_all_but(self.membership.view.members)
        self.training.protection.regroup()
        self.training.trainable.regroup()
        self._is_restored = False

    def _begin(self) -> None:
        with self.heart.resting():
            self.training.trainable.prepare()
            if self.membership.leads:
                self._write("start", self.world.rank)
            self.record.recorder.start()

    def _restore(self) -> None:
        with self.world.communicate("catch up"):
            with self.world.comm.waiting("how far the others have come", -1):
                if self.membership.view.following > self.world.size:  # a process may have joined
                    self.heart.meet()
                self.record.recorder.agree_when_it_began(knows=self.training.step != NOT_STARTED)
            self.training.restore()

    def _join(self) -> None:
        """As a process that was started later, become a member."""
        joining = self.world.joining
        assert joining is not None
        welcome = self.membership.enter()
        self.record.recorder.join(joining.offset, welcome)

    def _log_changes(self) -> None:
        """As the coordinator, log which members have left and joined, and which process is requested."""
        members = self.membership
        if not members.leads:
            return
        for lost in members.lost:
            self._write("departed", lost, "lost")
        for number in set(members.joined) - set(members.lost):
            self._write("joined", number)
        folder, log = self.record.folder, self.record.event_log
        if members.was_requested and (request := join_request.next_request(folder, log)):
            self._write("asked for", members.answering_rank, request)
        for number in members.spawned:
            self._write("sent for", number)

    def _report(self, error: PeerLost | MPI.Exception) -> None:
        """Log which ranks have died.

        Raises:
            MPI.Exception: it is about something else.
        """
        if isinstance(error, MPI.Exception) and error.Get_error_class() not in LOST:
            raise error
        assert self.world.witness is not None
        if isinstance(error, PeerLost) and error.ranks:  # else another rank has detected it, and interrupted this one
            self.world.witness.notices(error.ranks, self.training.step)

    def _write(self, what: What, rank: int, kind: str = "") -> None:
        self.record.event_log.write(what, rank, self.training.step, kind)


class FaultTolerantTraining(FaultTolerantSteps):
    """One member's part in a training, as a worker or as a spare."""

    training: ProtectedTraining

    def run(self) -> Summary | None:
        """Train to the end, and write the record; return the summary on the coordinator, None elsewhere."""
        self.heart.start()
        try:
            summary = self._train_with_those_left()
        finally:
            self.heart.stop()
        self.membership.dismiss_spawned()
        return summary

    def _train_with_those_left(self) -> Summary | None:
        while True:
            try:
                if not self.enter():
                    return None
                self.training.take_steps()
                with self.heart.resting():
                    summary = self.training.finish()
                self.membership.conclude()
                return summary
            except (PeerLost, MPI.Exception, MembersChange, Invited) as cause:
                self.recover(cause)
