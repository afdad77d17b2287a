"""The α and β of a machine, from the times that schedules took on it, and the schedule that is the fastest by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from farandole.collectives.costs import Link, Machine, coefficients
from farandole.collectives.schedules import ALL_REDUCE_NAMES, SCHEDULES
from farandole.collectives.steps import Schedule

MODELLED = tuple(name for name in ALL_REDUCE_NAMES if name in SCHEDULES)  # the all-reduces whose time the model knows


@dataclass(frozen=True)
class Measurement:
    """A schedule's measured time, on this number of ranks, for a vector of `nbytes`."""

    schedule: Schedule
    ranks: int
    nbytes: int
    seconds: float


def fitted(measured: Sequence[Measurement], gamma: float, multiport: bool = False) -> Machine:
    """Return the α and β, none below 0, with which the model is nearest to all measurements, for a γ that is known.

    Nearest: least squares of the relative errors, so that short vectors, where α decides, count as much as long ones.

    Args:
        multiport: as in `Machine`.
    """
    ways = np.array([coefficients(each.schedule, each.ranks, multiport) for each in measured])
    nbytes = np.array([each.nbytes for each in measured])
    seconds = np.array([each.seconds for each in measured])
    adding = ways[:, 2] * nbytes * gamma
    columns = np.stack([ways[:, 0], ways[:, 1] * nbytes], axis=1)
    (alpha, beta), _ = nnls(columns / seconds[:, None], (seconds - adding) / seconds)
    return Machine(Link(alpha=float(alpha), beta=float(beta)), gamma, multiport=multiport)


def fastest(machine: Machine, ranks: int, nbytes: int) -> str:
    """Return the name of the all-reduce with the shortest time for a vector of `nbytes`, by the model."""
    figures = machine.link.alpha, nbytes * machine.link.beta, nbytes * machine.gamma
    return min(MODELLED, key=lambda name: float(np.dot(coefficients(SCHEDULES[name][0], ranks), figures)))
