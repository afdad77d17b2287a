"""Fast failure (快速失败机制): a step that fails on one worker alone is tried again by this worker.

The other workers wait in the all-reduce meanwhile. Once the time is over the failure is final, and the worker leaves.
Document 001 has the same in its fault-tolerant SGD. Cost: nothing while no step fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from farandole.recovery.training_record import TrainingRecord

Result = TypeVar("Result")


class Retry:
    """Repeats what fails on this worker.

    Args:
        seconds: how long to try again.

    Attributes:
        failed: failed tries of this worker since the members last changed.
    """

    def __init__(self, record: TrainingRecord, seconds: float) -> None:
        self.record, self.seconds = record, seconds
        self.failed = 0

    def __call__(self, step: int, attempt: Callable[[], Result], rewind: Callable[[], None]) -> Result:
        """Return what `attempt` returns, called again after `rewind` as long as it fails.

        Raises:
            RuntimeError, OSError: it has failed until no time was left.
        """
        deadline = time.monotonic() + self.seconds
        failed_before = self.failed
        while True:
            try:
                result = attempt()
                break
            except (RuntimeError, OSError):
                self.failed += 1
                if time.monotonic() > deadline:
                    raise
                rewind()
        if self.failed > failed_before:
            self.record.event_log.write("retried", self.record.world.rank, step)
        return result
