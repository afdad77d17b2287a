"""A data-parallel training that outlives its workers: who is left catches up, and goes on.

All workers hold the same parameters, so whoever lives knows all that the dead knew, but for what was
the dead one's own. After a change of the members (`membership`) the workers compare how far each has
come. A step whose all-reduce was interrupted has changed no parameters and is taken again; where one
worker got its result and another did not, who is behind is sent the state of who is ahead. So no step
is lost and none is done twice. A spare that takes a place is sent the state, too.

    wait       for a place, as a spare
    train      step after step, until done or somebody is missed
    update     the membership
    catch up   with who has come furthest
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.data_parallel.bold_driver import BoldDriver
from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.training import accuracy, samples_used
from farandole.errors import UsageError
from farandole.models import choices
from farandole.recovery import membership
from farandole.recovery.batches import Batches
from farandole.recovery.heartbeat import Heart
from farandole.recovery.logbook import Logbook, RankWitness
from farandole.recovery.membership import Membership, NobodyLeft
from farandole.recovery.options import ElasticOptions
from farandole.recovery.replica import Replica, seed_random
from farandole.recovery.state import TrainingState
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import LOST, broadcast_text
from farandole.runtime.failure import PeerLost
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

NEWCOMER = -1  # has come to no step


class MoreWorkers(Exception):
    """There were so many failures that a spare is to join."""


class ElasticTraining:
    """One member's part in it, be it at work or waiting."""

    def __init__(self, world: World, scenario: str, options: ElasticOptions, sharded: bool = False) -> None:
        membership.check(world.size, options.spares)
        if options.hang_after >= options.wait_timeout:
            raise UsageError(
                f"--hang-after {options.hang_after:g}: whoever waits gives up after --wait-timeout "
                f"{options.wait_timeout:g}; give less"
            )
        self.world, self.options = world, options
        self.recorder = Recorder(world, scenario, options)
        self.folder = Path(broadcast_text(world.control, str(self.recorder.folder)))
        self.logbook = Logbook(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.logbook, world.rank)
        self.batches = Batches(world, options, self.folder, world.size - options.spares)
        self.heart = Heart(world, options.hang_after, self._silent)
        self.membership = Membership(world, options.spares)
        self.replica = Replica(world, options, sharded)
        self.losses = LossLog(world, self.recorder, options.steps)
        self.driver = BoldDriver(options.lr)
        self.failed_tries = 0  # of this worker, since the members last changed
        self.step = 0 if self.membership.place is not None else NEWCOMER

    def run(self) -> Summary | None:
        """Train to the end, and write the record; the summary on the centre, None elsewhere."""
        self.heart.start()
        try:
            return self._live()
        finally:
            self.heart.stop()

    def _live(self) -> Summary | None:
        if self.membership.leads:
            self.logbook.write("start", self.world.rank, 0)
        self.recorder.start()
        complete = True  # nothing to catch up with
        while True:
            try:
                if self.membership.place is None:
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
            except MoreWorkers:
                self.logbook.write("enlarged", self.world.rank, self.step)
                self.membership.update(more=1)
            if self.membership.leads:
                for lost in self.membership.lost:
                    self.logbook.write("departed", lost, self.step, "lost")
            self.failed_tries = 0
            self.heart.forget(set(range(self.world.size)) - set(self.membership.view.members))
            self.replica.regroup()
            complete = False

    def _train(self) -> None:
        first = self.step
        for step in range(first, self.options.steps):
            self._protect(step)
            loss, share, whole = self._own_part(step)
            self.replica.optimizer.step()
            self.step = step + 1
            if step == first and self.membership.leads:
                self.logbook.write("first step", self.world.rank, step)
            self.losses.add(step, loss, share, whole)
            if self.losses.following == self.step:  # all have just exchanged their losses
                self._draw_conclusions()

    def _own_part(self, step: int) -> tuple[float, float, int]:
        """The gradient of this worker's part of the batch; taken again if it fails here, which the others wait for.

        Returns:
            Mean loss, share of the batch, and the batch's samples.

        Raises:
            RuntimeError, OSError: it has failed until there was no time left for it.
        """
        self.replica.begin(step)
        deadline = time.monotonic() + self.options.retry_for
        failed_before = self.failed_tries
        while True:
            try:
                self.world.begin_step(step)
                inputs, targets, whole = self.batches.take(self.world.comm.rank, self.world.comm.size)
                share = len(inputs) / whole
                loss = self.replica.gradient(inputs, targets, share)
                break
            except (RuntimeError, OSError):
                self.failed_tries += 1
                if time.monotonic() > deadline:
                    raise
                self.batches.go_to(step)
                self.replica.rewind(step)
        if self.failed_tries > failed_before:
            self.logbook.write("retried", self.world.rank, step)
        return loss, share, whole

    def _draw_conclusions(self) -> None:
        """From the losses and the failed tries of all.

        Raises:
            MoreWorkers: of these there were too many.
        """
        if self.options.adapt_lr:
            self.replica.set_rate(self.driver.observe(self.losses.last_mean))
            self.replica.values["before"] = self.driver.before
        tries = np.array([self.failed_tries])
        with self.world.comm.waiting("failures of the others", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, tries)
        if tries[0] >= self.options.failures and self.membership.view.spares and self.step < self.options.steps:
            raise MoreWorkers

    def _silent(self, rank: int, step: int) -> None:
        self.logbook.write("noticed", rank, step, "silent")

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

    def _protect(self, step: int) -> None:
        """Before each step: keep what could be lost. Here nothing: what the dead knew the others know."""

    def _catch_up(self) -> None:
        """Go on together, with the same step."""
        with self.world.communicate("catch up"), self.world.comm.waiting("how far the others have come", -1):
            self.step = self._be_alike()
            if self.membership.leads:  # before anybody goes on, and may fail again
                self.logbook.write("start", self.world.rank, self.step)
            self._take_over_the_record()
            self.batches.go_to(self.step)
            self.driver = BoldDriver(self.replica.values["lr"], self.replica.values.get("before"))

    def _be_alike(self) -> int:
        """Have all workers be where the foremost of them is; returns the step to take next."""
        comm = self.world.comm
        steps = np.empty(comm.size, dtype=np.int64)
        comm.mpi.Allgather(np.array([self.step]), steps)
        newest = int(steps.max())
        if newest == NEWCOMER:
            raise NobodyLeft("every worker has died, and with them what the spares would need to know")
        if (steps != newest).any():
            source = int(steps.argmax())
            state = send_state(comm.mpi, self.replica.state(newest), source)
            if self.step != newest:
                self.replica.adopt(state)
            if self.step == NEWCOMER:
                seed_random(self.options.seed, self.world.rank, newest)
        self.replica.rewind(newest)
        return newest

    def _take_over_the_record(self) -> None:
        """The centre, perhaps a new one, writes on from where the one before has come to."""
        written = np.zeros(1, dtype=np.int64)
        if self.membership.leads:
            written[0] = min(self.step, self.recorder.take_over(self.folder))
            self.recorder.go_on_from(int(written[0]))
        self.world.control.Bcast(written)
        self.losses.go_on_from(self.step, int(written[0]))

    def _finish(self) -> Summary | None:
        test = self.batches.splits.test if self.membership.leads else None
        return self.recorder.finish(
            steps=self.options.steps,
            samples=samples_used(self.batches.data.shares, self.options.batch, self.options.steps),
            final_loss=self.losses.last,
            test_accuracy=accuracy(self.replica.model, test, self.world.device) if test else None,
            params_sha256=sha256(self.replica.model),
            faults=self.logbook.faults() if self.membership.leads else (),
        )


def send_state(mpi: MPI.Intracomm, state: TrainingState, source: int) -> TrainingState:
    """The state of rank `source`, on all ranks; but for what is each rank's own. Collective.

    Args:
        state: the own one, with tensors of the same names and shapes, which stay as they are.

    Cost: one broadcast of all its bytes.
    """
    values = json.loads(broadcast_text(mpi, json.dumps({"step": state.step} | state.values), source))
    shared = {}
    for name in sorted(state.shared):
        shared[name] = state.shared[name].detach().cpu().clone()
        mpi.Bcast(shared[name].numpy(), source)
    return TrainingState(values.pop("step"), shared, {}, values)


def train(scenario: str, options: ElasticOptions) -> Summary | None:
    """Train to the end, whoever dies; the summary on the rank that leads then, None elsewhere.

    Raises:
        NobodyLeft: all workers have died.
    """
    choices.check(options)
    with World.start(options) as world:
        return ElasticTraining(world, scenario, options).run()
