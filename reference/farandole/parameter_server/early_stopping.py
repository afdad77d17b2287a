"""Early stopping by a background thread, for which no worker waits.

In document 001's asynchronous update a background thread reads the model's state from time to time, and decides from
the latest parameters whether the updates go on. Here it runs on the manager's rank, beside the manager, with its own
client. That client has no clock, so no policy waits for it.

    every --check-every seconds   read the servers' parameters w;  L ← validation loss at w
    L < --stop-below              good enough: end
    L has not fallen by 1 % for --stop-stalled checks in a row: no progress: end
    end                           the first server permits no further iteration; those that have begun are completed

At its next pull each worker learns that no work is left, as at the usual end. With several servers the parts of one
reading may be some updates apart, as they may be for a worker.

Cost: the parameters once per check, from the servers to the manager's rank, and a forward pass there.
Source: Prechelt, "Early stopping – but when?", 1998 (stop when the validation loss does not fall any more).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError
from farandole.parameter_server.core.policies import POLICIES
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.options import PolicyOptions

LEAST_FALL = 0.01  # relative to the smallest loss so far; a smaller fall is no progress


class StoppingRule:
    """Decides after each loss whether the training continues. Sends no messages.

    Args:
        below: end once a loss is smaller; None: never for that reason.
        stalled: end after this many losses in a row without progress; None: never for that reason.
    """

    def __init__(self, below: float | None, stalled: int | None) -> None:
        self.below, self.stalled = below, stalled
        self._least = math.inf
        self._without_progress = 0

    def reason_to_end(self, loss: float) -> str | None:
        """Note the latest loss, and return why to end the training; None: go on."""
        if self.below is not None and loss < self.below:
            return f"validation loss {loss:.3f} is below {self.below:g}"
        if loss < self._least * (1 - LEAST_FALL):
            self._least, self._without_progress = loss, 0
        else:
            self._without_progress += 1
        if self.stalled is not None and self._without_progress >= self.stalled:
            return f"validation loss has not fallen below {self._least:.3f} in {self.stalled} checks"
        return None


class Watch:
    """The thread's work: check the loss now and then, and end the training.

    Args:
        loss: the validation loss of parameters like `table`.
        elapsed_s: seconds since the training began.

    Attributes:
        checks: for each: the time, the first server's number of updates, the loss.
        ended: why this thread has ended the training; None: it has not.
    """

    def __init__(
        self,
        table: NDArray[Any],
        loss: Callable[[NDArray[Any]], float],
        rule: StoppingRule,
        check_every_s: float,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._incoming = np.empty_like(table)
        self._loss, self._rule, self._check_every_s, self._elapsed_s = loss, rule, check_every_s, elapsed_s
        self.checks: list[dict[str, float]] = []
        self.ended: str | None = None

    def work(self, kv: KVWorker) -> None:
        """Check the loss until it ends the training, or no worker is left."""
        due = 0.0
        while not self.ended and kv.wait(kv.progress(), "the manager's answer").workers:
            if self._elapsed_s() >= due:
                self._check(kv)
                due = self._elapsed_s() + self._check_every_s
            time.sleep(min(0.01, self._check_every_s))

    def figures(self) -> dict[str, Any]:
        """Return the record's entry (`Summary.stopping`)."""
        return {"ended": self.ended, "checks": self.checks}

    def _check(self, kv: KVWorker) -> None:
        versions = kv.wait(kv.read(self._incoming), "reading of the parameters")
        loss = self._loss(self._incoming)
        self.checks.append({"wall_s": self._elapsed_s(), "updates": versions[min(versions)], "loss": loss})
        self.ended = self._rule.reason_to_end(loss)
        if self.ended:
            kv.wait(kv.end_training(), "the end of the training")


def is_asked_for(options: PolicyOptions) -> bool:
    return options.stop_below is not None or options.stop_stalled is not None


def check(options: PolicyOptions) -> None:
    """Refuse options with which the thread cannot end the training.

    Raises:
        UsageError: it names the option and the reason.
    """
    if not is_asked_for(options):
        return
    for given, what in (
        (
            POLICIES[options.sync].in_rounds,
            f"--sync {options.sync}, where a step that has begun needs all its gradients",
        ),
        (options.replicas > 1, "--replicas: a successor of the manager would not have the thread"),
        (options.applications > 1, "--applications: it would have to judge several models"),
        (options.server_change, "--server-change: the thread knows only the initial servers"),
    ):
        if given:
            name = "--stop-below" if options.stop_below is not None else "--stop-stalled"
            raise UsageError(f"{name} does not go with {what}; leave out one of them")
