"""The best interval between checkpoints, by Young and by Daly.

Saving takes C seconds, and a failure comes every μ seconds on average. Rare checkpoints cost repeated work, frequent
ones cost time. The waste is least near

    T = √(2·C·μ)                                            Young, 1974
    T = √(2·C·μ)·(1 + ⅓·√(C/2μ) + ⅑·C/2μ) − C               Daly, 2006, for C < 2μ; else μ

and the curve is flat there: half or twice the interval costs little more. Failures are assumed to be
independent (exponential times between them), as they nearly are on large machines.

Sources: Young, "A first order approximation to the optimum checkpoint interval", 1974; Daly, "A higher
order estimate of the optimum checkpoint interval for restart dumps", 2006.
"""

from __future__ import annotations

from math import exp, expm1, sqrt


def young(cost_s: float, mtbf_s: float) -> float:
    """Return the seconds of work between two checkpoints of `cost_s` each, with a failure every `mtbf_s` on average."""
    return sqrt(2 * cost_s * mtbf_s)


def daly(cost_s: float, mtbf_s: float) -> float:
    """Return the interval to a higher order, right also where a checkpoint takes much of the time between failures."""
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return young(cost_s, mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost_s


def expected_s(work_s: float, interval_s: float, cost_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return how long `work_s` seconds of work take on average, with failures (Daly's complete model).

    Args:
        interval_s: work between two checkpoints.
        restart_s: from a failure to the first new step; a failure may strike then as well.
    """
    segments = work_s / interval_s
    return mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + cost_s) / mtbf_s) * segments


class Cadence:
    """The steps after which to save.

    Args:
        every: steps between two checkpoints; 0: never.
        mtbf_s: if given, only a start's first checkpoint comes after `every` steps; each one's cost then decides
            when the next one is due, by Young's formula.
    """

    def __init__(self, every: int, mtbf_s: float | None = None) -> None:
        self.every, self.mtbf_s = every, mtbf_s

    def due(self, steps_since: int) -> bool:
        """Return whether to save, `steps_since` the last checkpoint."""
        return self.every > 0 and steps_since >= self.every

    def measured(self, cost_s: float, step_s: float) -> None:
        """Adapt to a checkpoint that has held training up for `cost_s`, where a step takes `step_s`."""
        if self.mtbf_s is not None and self.every:
            self.every = max(1, round(young(cost_s, self.mtbf_s) / step_s))
