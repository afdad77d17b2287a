"""The learning rate of a training that adapts it, decided equally on all workers where they exchange their losses.

"loss"        up while a window's mean loss falls; halved where it rises, and the window's steps undone
              (`data_parallel.bold_driver`)
"gradients"   up while successive mean gradients point in the same direction (`data_parallel.gradient_agreement`)
""            fixed
"""

from __future__ import annotations

from farandole.data_parallel.bold_driver import BoldDriver
from farandole.errors import UsageError
from farandole.recovery.options import MembershipOptions
from farandole.recovery.protection import NOT_STARTED
from farandole.recovery.replica import Replica
from farandole.recovery.training_record import TrainingRecord


class AdaptiveRate:
    """One worker's part in it.

    Args:
        adapts: the quantity that the rate follows.
        lr: the first rate.

    Attributes:
        concluded_at: the step after which the rate was last decided.
    """

    def __init__(self, record: TrainingRecord, adapts: str, lr: float) -> None:
        self.record, self.adapts = record, adapts
        self.driver = BoldDriver(lr)
        self.concluded_at = NOT_STARTED

    def adapt(self, replica: Replica, following: int, mean_loss: float) -> None:
        """Set the rate from a window's mean loss or mean gradients, the same on all workers.

        Args:
            following: the step after the window.
        """
        if not self.adapts:
            return
        if agreement := replica.agreement:
            replica.set_rate(agreement.conclude(replica.values["lr"]))
        else:
            replica.set_rate(self.driver.observe(mean_loss))
            replica.values["before"] = self.driver.before
            if self.driver.undo:
                replica.undo()
                self.record.note("undone", following)
            else:
                replica.accept()
        self.concluded_at = following

    def resume(self, replica: Replica) -> None:
        """Continue with the rate of a replica that was restored."""
        self.driver = BoldDriver(replica.values["lr"], replica.values.get("before"))


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
