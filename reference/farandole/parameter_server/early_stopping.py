"""A thread that decides whether the training goes on, while nobody waits for it.

Document 001's asynchronous update: a background thread looks at the model's state from time to time, and decides by the
latest parameters whether the updates go on. It runs on the manager's rank, beside the manager, with a client of its own
that has no clock: no policy waits for it.

    every --check-every seconds   read the servers' parameters w;  L ← validation loss at w
    L < --stop-below              good enough: end
    L has not fallen by 1 % for --stop-stalled checks in a row: no progress: end
    end                           the first server begins no iteration any more; what is begun is completed

Each worker finds at its next pull that no work is left, as at the usual end. With several servers one reading may be
of parts that are some updates apart, as it is for a worker.

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
from farandole.parameter_server.client import Client
from farandole.parameter_server.options import PolicyOptions

LEAST_FALL = 0.01  # of the smallest loss so far; less is no progress


class StoppingRule:
    """Decides by one loss after the other whether to go on. Pure.

    Args:
        below: end once a loss is less; None: no loss is good enough.
        stalled: end after so many losses in a row without progress; None: whatever their number.
    """

    def __init__(self, below: float | None, stalled: int | None) -> None:
        self.below, self.stalled = below, stalled
        self._least = math.inf
        self._without_progress = 0

    def reason_to_end(self, loss: float) -> str | None:
        """Take in the latest loss; None: go on."""
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
    """What the thread does with its client.

    Args:
        loss: the validation loss of parameters like `table`.
        elapsed_s: seconds since the training began.

    Attributes:
        checks: of each: when, how often the first server had moved the parameters that were read, the loss.
        ended: why the training was ended; None: nobody has ended it.
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

    def work(self, client: Client) -> None:
        """Check, until it has ended the training, or no worker is left."""
        due = 0.0
        while not self.ended and client.wait(client.progress(), "the manager's answer").workers:
            if self._elapsed_s() >= due:
                self._check(client)
                due = self._elapsed_s() + self._check_every_s
            time.sleep(min(0.01, self._check_every_s))

    def figures(self) -> dict[str, Any]:
        """What the record has of it (`Summary.stopping`)."""
        return {"ended": self.ended, "checks": self.checks}

    def _check(self, client: Client) -> None:
        versions = client.wait(client.read(self._incoming), "reading of the parameters")
        loss = self._loss(self._incoming)
        self.checks.append({"wall_s": self._elapsed_s(), "updates": versions[min(versions)], "loss": loss})
        self.ended = self._rule.reason_to_end(loss)
        if self.ended:
            client.wait(client.end_training(), "the end of the training")


def is_asked_for(options: PolicyOptions) -> bool:
    return options.stop_below is not None or options.stop_stalled is not None


def check(options: PolicyOptions) -> None:
    """Refuse what the thread cannot do.

    Raises:
        UsageError: saying what, and why.
    """
    if not is_asked_for(options):
        return
    for given, what in (
        (
            options.sync in ("minibatch", "partial", "history"),
            f"--sync {options.sync}, where a step begun needs all its gradients: end one of the others",
        ),
        (options.replicas > 1, "--replicas: who took the manager's place would not have the thread"),
        (options.applications > 1, "--applications: it would have to judge several models"),
        (options.server_change, "--server-change: it knows the servers of the beginning"),
    ):
        if given:
            name = "--stop-below" if options.stop_below is not None else "--stop-stalled"
            raise UsageError(f"{name} does not go with {what}; leave out one of them")
