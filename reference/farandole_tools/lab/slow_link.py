"""A link that is slow by sleeping: what lab 15's predictions are measured on.

A message of n bytes occupies it for α + nβ, at its sender, and at its receiver where several arrive at once. The very
first message takes a set-up beside: an MPI, too, makes its connections when they are first used. On real cores and a
real network other work gets in between; here nearly all of the time is asleep, so a prediction can be held to it on a
machine that is busy or small.
"""

from __future__ import annotations

import time

from farandole.runtime.links import Link


class SlowLink(Link):
    """One rank's connection to all others.

    Args:
        alpha: seconds for each message.
        beta: seconds for each byte, above 0.
        setup_s: seconds for the first message that is sent, beside its own.
    """

    def __init__(self, alpha: float, beta: float, setup_s: float = 0.0) -> None:
        super().__init__(mbps=8e-6 / beta, latency_s=alpha)
        self._setup_s = setup_s

    def send(self, nbytes: int) -> None:
        """Return when `nbytes` bytes have left, after all that were there before."""
        setup_s, self._setup_s = self._setup_s, 0.0
        time.sleep(setup_s)
        super().send(nbytes)
