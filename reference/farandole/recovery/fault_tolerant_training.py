"""The training loop that outlives ranks, the same for every method: steps, and what happens between two of them.

    wait       for a slot, as a spare, or at the door
    train      protect and take step after step, until done or a rank is found missing
    update     the membership (`membership`)
    restore    be at the same step as all others (`protection`); then train again

What a step is, the subclass says: `data_parallel` or `pipeline`. What is kept, and how it is restored after a death, is
its `Protection`'s. The loop knows neither.
"""

from __future__ import annotations

from pathlib import Path

from mpi4py import MPI

from farandole.errors import PlainError
from farandole.recovery import heartbeat, join_request, membership
from farandole.recovery.admission import Invited
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.heartbeat import Heart
from farandole.recovery.membership import Membership
from farandole.recovery.options import FaultTolerantOptions
from farandole.recovery.protection import Protection
from farandole.runtime.communicator import LOST, broadcast_text
from farandole.runtime.failure import PeerLost
from farandole.runtime.faults import WITH_DEATHS, refuse_message_faults
from farandole.runtime.joining import Told
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

NOT_STARTED = -1  # the step of a rank that has taken none


class MembersChange(Exception):
    """The members are to change though nobody has died: the process that was sent for is ready to join, or lost, or …

    Attributes:
        more: one more is to work, if there is a spare or one may be started.
        asked: one more was asked for from outside.
    """

    def __init__(self, more: bool, asked: bool) -> None:
        super().__init__()
        self.more, self.asked = more, asked


class Unrecoverable(PlainError):
    """The training cannot go on without those that have died."""


class FaultTolerantTraining:
    """One member's part in it, as a worker or as a spare.

    Attributes:
        step: to be taken next.
        steps, protection: set by the subclass: steps in all, and what keeps and restores what could be lost.
    """

    steps: int
    protection: Protection

    def __init__(self, world: World, scenario: str, options: FaultTolerantOptions) -> None:
        refuse_message_faults(options.fail, WITH_DEATHS)
        membership.check(world.size, options.spares)
        heartbeat.check(options.hang_after, options.wait_timeout)
        self.world = world
        greeting = world.joining.greeting if world.joining else None
        self.recorder = Recorder(world, scenario, options)
        self.folder = Path(greeting["folder"] if greeting else broadcast_text(world.control, str(self.recorder.folder)))
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)
        self._prepare()
        self.heart = Heart(world, options.hang_after, self._silent, greeting["secret"] if greeting else None)
        self.membership = Membership(world, options.spares, options.joining_at_most, self._greeting, self._welcome)
        self.step = 0 if self.membership.slot is not None else NOT_STARTED

    def run(self) -> Summary | None:
        """Train to the end, and write the record; the summary on the coordinator, None elsewhere."""
        self.heart.start()
        try:
            summary = self._live()
        finally:
            self.heart.stop()
        self.membership.see_off()
        return summary

    # What a training consists of.

    def _prepare(self) -> None:
        """What all ranks do together, before the spares part from the workers."""

    def _set_up(self) -> None:
        """What takes time before the first step."""

    def _step(self, step: int) -> None:
        """Take one step."""
        raise NotImplementedError

    def _account(self, step: int) -> None:
        """The step is done: record it, and decide with the others on what follows from it."""

    def _finish(self) -> Summary | None:
        """All steps are done: evaluate, and write the record."""
        raise NotImplementedError

    def _regroup(self) -> None:
        """The members have changed; as a spare, too."""

    def _take_over_the_record(self) -> None:
        """The coordinator, perhaps a new one, writes on."""
        raise NotImplementedError

    def _live(self) -> Summary | None:
        begun = False
        complete = True  # nothing to catch up with
        while True:
            try:
                if not begun:
                    begun = True  # also if somebody dies in it
                    self._begin()
                if self.membership.slot is None:
                    with self.heart.resting():
                        needed = self.membership.wait()
                    if not needed:
                        return None
                    continue
                if not complete:
                    self._catch_up()
                    complete = True
                self._train()
                self.recorder.stop()
                with self.heart.resting():
                    summary = self._finish()
                self.membership.conclude()
                return summary
            except (PeerLost, MPI.Exception) as error:
                self._note(error)
                self.membership.update()
            except MembersChange as wish:
                if wish.more or wish.asked:
                    self.event_log.write("enlarged", self.world.rank, self.step)
                self.membership.update(wish.more, wish.asked)
            except Invited:
                self._enter()
            self._write_down_who_came_and_went()
            self.heart.forget_all_but(self.membership.view.members)
            self._regroup()
            complete = False

    def _train(self) -> None:
        """Take all steps that are left."""
        first = self.step
        for step in range(first, self.steps):
            self.protection.protect(step)
            self._step(step)
            self.step = step + 1
            if step == first:
                self._note_first(step)
            self._account(step)

    def _begin(self) -> None:
        with self.heart.resting():
            self._set_up()
            if self.membership.leads:
                self.event_log.write("start", self.world.rank, 0)
            self.recorder.start()

    def _enter(self) -> None:
        """Having come later, join the others."""
        joining = self.world.joining
        assert joining is not None
        welcome = self.membership.enter()
        self.recorder.join(joining.offset, welcome)

    def _greeting(self) -> Told:
        """What a process that comes later has to know before it can prepare itself."""
        return {
            "size": self.world.size,
            "local_size": self.world.local_size,
            "folder": str(self.folder.resolve()),
            "secret": self.heart.secret,
        }

    def _welcome(self) -> Told:
        """What it has to know when it joins, beside the state of the training."""
        return self.recorder.clock

    def _write_down_who_came_and_went(self) -> None:
        if not self.membership.leads:
            return
        for lost in self.membership.lost:
            self.event_log.write("departed", lost, self.step, "lost")
        for number in set(self.membership.joined) - set(self.membership.lost):
            self.event_log.write("joined", number, self.step)
        if self.membership.was_asked and (request := join_request.next_request(self.folder, self.event_log)):
            self.event_log.write("asked for", self.membership.who_answers, self.step, request)
        for number in self.membership.sent_for:
            self.event_log.write("sent for", number, self.step)

    def _catch_up(self) -> None:
        """Go on together, with the same step."""
        with self.world.communicate("catch up"):
            if self.membership.view.following > self.world.size:  # somebody may have come later
                self.heart.meet()
            self.recorder.agree_when_it_began(knows=self.step != NOT_STARTED)
            self.step = self.protection.restore()
            if self.membership.leads:  # before anybody goes on, and may fail again
                self.event_log.write("start", self.world.rank, self.step)
            self._take_over_the_record()

    def _note_first(self, step: int) -> None:
        """The first step since the start, or since the members have changed, is done."""
        if self.membership.leads:
            self.event_log.write("first step", self.world.rank, step)

    def _silent(self, rank: int, step: int) -> None:
        self.event_log.write("noticed", rank, step, "silent")

    def _note(self, error: PeerLost | MPI.Exception) -> None:
        """Write down who has died.

        Raises:
            MPI.Exception: it is about something else.
        """
        if isinstance(error, MPI.Exception) and error.Get_error_class() not in LOST:
            raise error
        assert self.world.witness is not None
        if isinstance(error, PeerLost) and error.ranks:  # else another one has noticed, and woken this one
            self.world.witness.notices(error.ranks, self.step)
