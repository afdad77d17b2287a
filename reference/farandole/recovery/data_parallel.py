"""A data-parallel training that continues when workers die, join, or fail at a step: what is done in a step.

Each worker computes the gradient of its part of the batch, tries again if that fails on it alone, and all-reduces. From
the losses that all exchange every ten steps the workers decide together on the learning rate, and on whether another
worker is to join. How the members find each other again is in `fault_tolerant_training`, and what was kept of the dead
worker's in its `Protection`: `membership_protection` here, `backup` for copies with buddies.
"""

from __future__ import annotations

import time
from collections.abc import Callable

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
from farandole.recovery.membership_protection import MembershipProtection
from farandole.recovery.options import MembershipOptions
from farandole.recovery.protection import Protection
from farandole.recovery.replica import Replica
from farandole.runtime.buffers import sha256
from farandole.runtime.record import Summary
from farandole.runtime.world import World


class DataParallelTraining(FaultTolerantTraining):
    """One member's part in it, as a worker or as a spare.

    Args:
        protection: makes the `Protection` of this training.
        sharded: divide the optimizer's state over the workers (ZeRO-1).

    Attributes:
        concluded_at: the step after which the learning rate was last decided.
    """

    def __init__(
        self,
        world: World,
        scenario: str,
        options: MembershipOptions,
        protection: Callable[[DataParallelTraining], Protection],
        sharded: bool = False,
    ) -> None:
        self.options, self.steps = options, options.steps
        super().__init__(world, scenario, options)
        self.replica = Replica(world, options, sharded, options.adapts)
        self.losses = LossLog(world, self.recorder, options.steps)
        self.driver = BoldDriver(options.lr)
        self.concluded_at = NOT_STARTED
        self.failed_tries = 0  # of this worker, since the members last changed
        self.protection = protection(self)

    def _prepare(self) -> None:
        workers = self.world.size - self.options.spares
        self.batches = Batches(self.world, self.options, self.folder, workers)

    def _step(self, step: int) -> None:
        self._own = self._own_part(step)
        self.protection.secure()
        self.replica.optimizer.step()

    def _account(self, step: int) -> None:
        self.losses.add(step, *self._own)
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
            self.protection.protect_now()
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
        self.concluded_at = self.step

    def _is_asked_for_more(self) -> bool:
        """By somebody outside, who has not been answered yet."""
        return join_request.next_request(self.folder, self.event_log) is not None

    def _regroup(self) -> None:
        self.failed_tries = 0
        self.replica.regroup()
        self.protection.regroup()

    def _catch_up(self) -> None:
        with self.world.comm.waiting("how far the others have come", -1):
            super()._catch_up()
        self.batches.go_to(self.step)
        self.driver = BoldDriver(self.replica.values["lr"], self.replica.values.get("before"))

    def _take_over_the_record(self) -> None:
        """The coordinator, perhaps a new one, writes on from where the one before has come to."""
        told = np.empty((self.world.control.size, 2))  # who has come newly has no loss, and may have to tell it
        self.world.control.Allgather(np.array([self.losses.following, self.losses.last]), told)
        self.losses.last = float(max(told.tolist())[1])  # that of who has come furthest
        written = np.zeros(1, dtype=np.int64)
        if self.membership.leads:
            written[0] = min(self.protection.first_line(self.step), self.recorder.take_over(self.folder))
            self.recorder.go_on_from(int(written[0]))
        self.world.control.Bcast(written)
        self.losses.go_on_from(self.step, int(written[0]))
        self.losses.flush(self.step)  # at once: of what is still held back the next death may take the last who know

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
        return DataParallelTraining(world, scenario, options, MembershipProtection).run()
