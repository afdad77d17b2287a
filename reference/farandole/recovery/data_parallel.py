"""Data-parallel training whose ranks may die or join: one worker's step, as a `Trainable`.

Each worker computes the gradient of its part of the batch, tries again if that fails on it alone (`retry`), and
all-reduces. Every ten steps all workers exchange their losses, from which the learning rate may follow
(`adaptive_rate`). A `Protection` saves the worker's state: `checkpoint_protection`, `membership_protection` or
`backup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from farandole import tasks
from farandole.data.sampler import samples_used
from farandole.data_parallel.evaluation import judged, mean_of_statistics
from farandole.data_parallel.loss_log import LossLog
from farandole.recovery.adaptive_rate import AdaptiveRate, check_rate
from farandole.recovery.batches import Batches
from farandole.recovery.fault_tolerant_training import FaultTolerantTraining, check, form_members
from farandole.recovery.member_changes import MemberChanges
from farandole.recovery.membership import Membership
from farandole.recovery.options import ChangingMembersOptions, MembershipOptions, ReplicaOptions
from farandole.recovery.protected_training import ProtectedTraining
from farandole.recovery.protection import Protection
from farandole.recovery.replica import Replica
from farandole.recovery.retry import Retry
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime import devices
from farandole.runtime.buffers import sha256
from farandole.runtime.record import Summary
from farandole.runtime.world import World


class DataParallel:
    """One worker's copy of the model, its batches and its losses.

    Args:
        batches: made by all ranks together, before the spares part from the workers.
        retry: repeats a step that fails on this worker alone; None: the failure is final.
        adapts: the quantity that the learning rate follows: "loss", "gradients", or "" for a fixed rate.
        sharded: divide the optimizer's state over the workers (ZeRO-1).

    Attributes:
        replica: the copy of the model.
        losses: this worker's part of each step's loss.
        rate: decides the learning rate.
    """

    def __init__(
        self,
        record: TrainingRecord,
        options: ReplicaOptions,
        batches: Batches,
        retry: Retry | None = None,
        adapts: str = "",
        sharded: bool = False,
    ) -> None:
        self.record, self.world, self.options, self.batches = record, record.world, options, batches
        self.retry, self.adapts, self.sharded = retry, adapts, sharded
        self.steps = options.steps
        self.replica = Replica(self.world, options, sharded, adapts)
        self.losses = LossLog(self.world, record.recorder, options.steps)
        self.rate = AdaptiveRate(record, adapts, options.lr)

    def prepare(self) -> None:
        """Do nothing: all is prepared."""

    def step(self, step: int, secure: Callable[[], None]) -> None:
        """Compute the gradient of this worker's part of the batch, all-reduce it, and update the parameters."""
        self._own = self._own_part(step)
        secure()
        self.replica.optimizer.step()

    def account(self, step: int) -> bool:
        """Note this worker's part of the loss; every ten steps all workers exchange theirs, and adapt the rate."""
        self.losses.add(step, *self._own)
        if self.losses.following != step + 1:
            return False
        self.rate.adapt(self.replica, step + 1, self.losses.last_mean)
        return True

    def regroup(self) -> None:
        """Count failed tries from 0, and have the optimizer reduce over the workers left."""
        if self.retry:
            self.retry.failed = 0
        self.replica.regroup()

    def resume(self, step: int, first_line: int) -> None:
        """Go to `step` in the data, and have the leading worker write the record's next lines."""
        with self.world.comm.waiting("how far the others have come", -1):
            self.record.take_over(self.losses, step, first_line)
        self.batches.go_to(step)
        self.rate.resume(self.replica)

    def begin_anew(self) -> None:
        """Be as before the first step, in this worker's present slot."""
        devices.seed_everything(self.options.seed)
        self.replica = Replica(self.world, self.options, self.sharded, self.adapts)
        devices.seed_rank(self.options.seed, self.world.comm.rank, 0)
        self.losses.adopt(0, [])

    def finish(self) -> Summary | None:
        """Evaluate, and write the record. Collective."""
        mean_of_statistics(self.replica.model, self.world)
        test = self.batches.splits.test if self.record.leads else None
        metrics = self.batches.task.metrics
        return self.record.recorder.finish(
            steps=self.steps,
            samples=samples_used(self.batches.shares, self.options.batch, self.steps),
            final_loss=self.losses.last,
            test_metrics=judged(self.replica.model, test, self.world.device, metrics) if test else None,
            params_sha256=sha256(self.replica.model),
            faults=self.record.faults,
            joined=self.record.joined,
        )

    def _own_part(self, step: int) -> tuple[float, float, int]:
        """Compute the gradient of this worker's part of the batch, again if it fails here.

        Returns:
            Mean loss, share of the batch, and the batch's samples.
        """
        self.replica.begin(step)
        if self.retry is None:
            return self._gradient(step)
        return self.retry(step, lambda: self._gradient(step), lambda: self._rewind(step))

    def _gradient(self, step: int) -> tuple[float, float, int]:
        self.world.begin_step(step)
        batch, share, whole = self.batches.next_part(self.world.comm.rank, self.world.comm.size)
        return self.replica.gradient(batch, share), share, whole

    def _rewind(self, step: int) -> None:
        self.batches.go_to(step)
        self.replica.rewind(step)


Worker = TypeVar("Worker", bound=DataParallel)


def in_step(
    options: MembershipOptions, sharded: bool = False
) -> Callable[[TrainingRecord, Batches, Retry], DataParallel]:
    """Return what makes a worker of synchronous SGD.

    Raises:
        UsageError: options that do not fit.
    """
    check_rate(options)
    return lambda record, batches, retry: DataParallel(record, options, batches, retry, options.adapts, sharded)


def train(
    scenario: str,
    options: ChangingMembersOptions,
    make_worker: Callable[[TrainingRecord, Batches, Retry], Worker],
    make_protection: Callable[[TrainingRecord, Worker, Membership], Protection],
) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Raises:
        NoWorkerLeft: all workers have died.
        Unrecoverable: the protection cannot restore what was lost.
        UsageError: options that do not fit.
    """
    tasks.of(options)  # refuses a model that cannot read the data
    with World.start(options) as world:
        check(world, options)
        record = TrainingRecord(world, scenario, options)
        batches = Batches(world, options, record.folder, world.size - options.spares)
        heart, membership = form_members(record, options)
        retry = Retry(record, options.retry_for)
        worker = make_worker(record, batches, retry)
        changes = MemberChanges(record, membership, retry, options.failures)
        protection = make_protection(record, worker, membership)
        training = ProtectedTraining(record, worker, protection, changes.wanted)
        return FaultTolerantTraining(heart, membership, training).run()
