"""Workers that fail and come back: how long a step takes then.

A worker lives an exponentially distributed time, `every` on average. If it dies while it computes, that computation is
lost; after `recover` it is back, and begins it again. The parameters are safe: on a server, or with all other workers.
So a step of length c takes c, and before it every attempt that was cut short, each with a recovery:

    E[time] = (m + r)·(exp(c/m) − 1)        m: every, r: recover; for c much shorter than m about c·(1 + r/m + c/2m)

Of n workers that wait for each other one dies n times as often. No worker dies here while it waits or sends, and the
time to detect a death is part of `recover`. Source of the formula: Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps", 2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farandole.cost.stragglers import Straggler, Times
from farandole.errors import UsageError

SHARE = 0.5  # of a mean step: a worker that lives less long will hardly ever finish one


@dataclass(frozen=True)
class Failing(Straggler):
    """The steps of another distribution, with failures. All times are in multiples of an unhindered worker's mean.

    Attributes:
        every: mean time between two failures of one worker.
        recover: from a failure until the worker computes again.
    """

    straggler: Straggler
    every: float
    recover: float

    def __post_init__(self) -> None:
        if self.every < SHARE:
            raise ValueError(f"a worker that lives for less than {SHARE:g} steps will hardly ever finish one")

    @property
    def mean(self) -> float:  # type: ignore[override]  # of workers that do not fail, so that the loss shows
        return self.straggler.mean

    def sample(self, rng: np.random.Generator, steps: int, workers: int) -> Times:
        lengths = self.straggler.sample(rng, steps, workers)
        times, still = lengths.copy(), np.ones(lengths.shape, dtype=bool)
        while still.any():
            lived = rng.exponential(self.every, lengths.shape)
            still &= lived < lengths
            times += np.where(still, lived + self.recover, 0.0)
        return times


def failing(straggler: Straggler, every_s: float | None, recover_s: float, compute_s: float) -> Straggler:
    """Return the straggler of workers that fail every `every_s` seconds on average; None: never.

    Args:
        compute_s: an unhindered worker's mean.

    Raises:
        UsageError: they fail so often that no step ends.
    """
    if every_s is None:
        return straggler
    try:
        return Failing(straggler, every_s / compute_s, recover_s / compute_s)
    except ValueError as error:
        raise UsageError(f"--fail-every {every_s:g}: {error}") from error
