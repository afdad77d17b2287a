"""A data-parallel training that outlives its workers: who is left catches up, and goes on.

All workers hold the same parameters, so whoever lives knows all that the dead knew, but for what was
the dead one's own. After a change of the members (`membership`) the workers compare how far each has
come. A step whose all-reduce was interrupted has changed no parameters and is taken again; where one
worker got its result and another did not, who is behind is sent the state of who is ahead. So no step
is lost and none is done twice. A spare that takes a place is sent the state, too. The loop around it
is `fault_tolerant_training`'s.
"""

from __future__ import annotations

import json
import time

import numpy as np
from mpi4py import MPI

from farandole.data_parallel.bold_driver import BoldDriver
from farandole.data_parallel.evaluation import accuracy
from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.training import samples_used
from farandole.errors import UsageError
from farandole.models import choices
from farandole.recovery import join_request
from farandole.recovery.batches import Batches
from farandole.recovery.fault_tolerant_training import NOT_STARTED, FaultTolerantTraining, MembersChange
from farandole.recovery.membership import NobodyLeft
from farandole.recovery.options import MembershipOptions
from farandole.recovery.replica import Replica, seed_random
from farandole.recovery.state import TrainingState
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.record import Summary
from farandole.runtime.world import World


class DataParallelTraining(FaultTolerantTraining):
    """One member's part in it, be it at work or waiting."""

    def __init__(self, world: World, scenario: str, options: MembershipOptions, sharded: bool = False) -> None:
        self.options = options
        super().__init__(world, scenario, options)
        self.replica = Replica(world, options, sharded, options.adapts)
        self.losses = LossLog(world, self.recorder, options.steps)
        self.driver = BoldDriver(options.lr)
        self._concluded_at = NOT_STARTED  # the step after which the learning rate was last decided
        self.failed_tries = 0  # of this worker, since the members last changed

    def _prepare(self) -> None:
        workers = self.world.size - self.options.spares
        self.batches = Batches(self.world, self.options, self.folder, workers)

    def _train(self) -> None:
        first = self.step
        for step in range(first, self.options.steps):
            self._protect(step)
            loss, share, whole = self._own_part(step)
            self._make_sure()
            self.replica.optimizer.step()
            self.step = step + 1
            if step == first:
                self._note_first(step)
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
                inputs, targets, whole = self.batches.next_part(self.world.comm.rank, self.world.comm.size)
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
            self.event_log.write("retried", self.world.rank, step)
        return loss, share, whole

    def _draw_conclusions(self) -> None:
        """From the losses and the failed tries of all, and from what the coordinator knows of who was sent for.

        Raises:
            MembersChange: there is news of that one, there were too many failed tries, or one more was asked for.
        """
        if self.options.adapts:
            self._adapt_rate()
        asked = self.membership.leads and self.membership.view.sent_for is None and self._is_asked_for_more()
        said = np.array([self.failed_tries, self.membership.has_news, asked])
        with self.world.comm.waiting("failures of the others", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, said)
        tries, news, asked = said.tolist()
        many_tries = tries >= self.options.failures and self.membership.can_grow
        if (news or many_tries or asked) and self.step < self.options.steps:
            self._protect_all()
            raise MembersChange(more=many_tries, asked=bool(asked))

    def _adapt_rate(self) -> None:
        """Set the learning rate, equally on all workers, from a window's mean loss or mean gradients."""
        if agreement := self.replica.agreement:
            self.replica.set_rate(agreement.conclude(self.replica.values["lr"]))
        else:
            self.replica.set_rate(self.driver.observe(self.losses.last_mean))
            self.replica.values["before"] = self.driver.before
            if self.driver.undo:
                self.replica.undo()
                if self.membership.leads:
                    self.event_log.write("undone", self.world.rank, self.step)
            else:
                self.replica.accept()
        self._concluded_at = self.step

    def _is_asked_for_more(self) -> bool:
        """By somebody outside, who has not been answered yet."""
        return join_request.next_request(self.folder, self.event_log) is not None

    def _protect(self, step: int) -> None:
        """Before each step: keep what could be lost. Here nothing: what the dead knew the others know."""

    def _make_sure(self) -> None:
        """Before any parameter changes: what is kept is safe."""

    def _protect_all(self) -> None:
        """Likewise, before somebody joins though nobody has died: then no step need be done again."""

    def _regroup(self) -> None:
        self.failed_tries = 0
        self.replica.regroup()

    def _catch_up(self) -> None:
        with self.world.comm.waiting("how far the others have come", -1):
            super()._catch_up()
        self.batches.go_to(self.step)
        self.driver = BoldDriver(self.replica.values["lr"], self.replica.values.get("before"))

    def _be_alike(self) -> int:
        """Have all workers be where the foremost of them is; returns the step to take next."""
        comm = self.world.comm
        # Two workers at the same step may differ: one has decided the rate, the other's exchange was interrupted.
        own = np.array([2 * self.step + (self._concluded_at == self.step != NOT_STARTED)])
        reached = np.empty(comm.size, dtype=np.int64)
        comm.mpi.Allgather(own, reached)
        furthest = int(reached.max())
        newest, concluded = divmod(furthest, 2)
        if newest == NOT_STARTED:
            raise NobodyLeft("every worker has died, and with them what the spares would need to know")
        if (reached != furthest).any():
            source = int(reached.argmax())
            state = send_state(comm.mpi, self.replica.state(newest), source)
            if own[0] != furthest:
                self.replica.adopt(state)
                self._concluded_at = newest if concluded else NOT_STARTED
            if self.step == NOT_STARTED:
                seed_random(self.options.seed, self.world.rank, newest)
        self.replica.rewind(newest)
        return newest

    def _take_over_the_record(self) -> None:
        """The coordinator, perhaps a new one, writes on from where the one before has come to."""
        told = np.empty((self.world.control.size, 2))  # who has come newly has no loss, and may have to tell it
        self.world.control.Allgather(np.array([self.losses.following, self.losses.last]), told)
        self.losses.last = float(max(told.tolist())[1])  # that of who has come furthest
        written = np.zeros(1, dtype=np.int64)
        if self.membership.leads:
            written[0] = min(self._to_be_written(), self.recorder.take_over(self.folder))
            self.recorder.go_on_from(int(written[0]))
        self.world.control.Bcast(written)
        self.losses.go_on_from(self.step, int(written[0]))
        self.losses.flush(self.step)  # at once: of what is still held back the next death may take the last who know

    def _to_be_written(self) -> int:
        """From this step on lines are written anew, if they were written before; on who leads."""
        return self.step

    def _finish(self) -> Summary | None:
        test = self.batches.splits.test if self.membership.leads else None
        return self.recorder.finish(
            steps=self.options.steps,
            samples=samples_used(self.batches.data.shares, self.options.batch, self.options.steps),
            final_loss=self.losses.last,
            test_accuracy=accuracy(self.replica.model, test, self.world.device) if test else None,
            params_sha256=sha256(self.replica.model),
            faults=self.event_log.faults() if self.membership.leads else (),
            joined=self.event_log.joined() if self.membership.leads else (),
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


def check_rate(options: MembershipOptions) -> None:
    """Check the options for an adaptive learning rate.

    Raises:
        UsageError: --adapt-lr is missing, or not every rank has the mean gradient that the rate is to follow.
    """
    if options.adapt_lr_by != "loss" and not options.adapt_lr:
        raise UsageError(f"--adapt-lr-by {options.adapt_lr_by} has an effect only with --adapt-lr: add it")
    if options.adapts == "gradients" and getattr(options, "shard_optimizer", False):
        raise UsageError(
            "--adapt-lr-by gradients goes without --shard-optimizer, where no rank has the whole mean gradient"
        )


def train(scenario: str, options: MembershipOptions) -> Summary | None:
    """Train to the end, whoever dies; the summary on the rank that leads then, None elsewhere.

    Raises:
        NobodyLeft: all workers have died.
    """
    choices.check(options)
    check_rate(options)
    with World.start(options) as world:
        return DataParallelTraining(world, scenario, options).run()
