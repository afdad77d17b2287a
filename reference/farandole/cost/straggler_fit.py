"""Which distribution of `stragglers` measured computing times are nearest to, by Kolmogorov's distance.

Each candidate is fitted by its moments or its minimum. The distance is the largest difference between the shares of
measured times and of the distribution below any time: 0 is a perfect fit, 1 the worst. Cost: O(n log n) for n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farandole.cost.stragglers import SURE, Constant, LogNormal, Pareto, ShiftedExponential, Straggler, Times
from farandole.errors import UsageError


@dataclass(frozen=True)
class Fit:
    """The distribution nearest to measured times.

    Attributes:
        mean_s: their mean, in seconds.
        straggler: how they scatter around the mean.
        distance: the largest difference between measured and fitted shares below any time, 0 to 1 (Kolmogorov's).
    """

    mean_s: float
    straggler: Straggler
    distance: float


def fitted(seconds: Sequence[float] | Times) -> Fit:
    """Return the nearest of constant, shifted exponential, lognormal and Pareto, each by its moments or minimum."""
    times = np.sort(np.asarray(seconds, dtype=np.float64).ravel())
    if len(times) < 2 or times[0] <= 0:
        raise UsageError("fitting needs two or more times, all above 0")
    mean = float(times.mean())
    relative = times / mean
    if relative[-1] - relative[0] < SURE:
        return Fit(mean, Constant(), 0.0)
    least = float(relative[0])
    logs = np.log(relative)
    candidates: list[Straggler] = [
        ShiftedExponential(min(least, 0.9999)),
        LogNormal(min(3.0, float(logs.std()))),
        Pareto(max(1.001, 1 / float((logs - logs[0]).mean()))),
    ]
    return min((Fit(mean, each, _distance(relative, each)) for each in candidates), key=lambda fit: fit.distance)


def _distance(ordered: Times, straggler: Straggler) -> float:
    below = 1 - np.array([straggler.exceeds(float(time)) for time in ordered])
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(below - steps[1:]).max(), np.abs(below - steps[:-1]).max()))
