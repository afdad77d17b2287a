"""The work of a round, the same for everyone whom `farandole bench ps` measures.

Each of R workers holds a gradient g_r of float32 numbers that does not change. One round: every
worker pushes its gradient, the server applies w ← w − η·(g_1 + … + g_R)/R, every worker pulls, and
then has the new w in its own memory. Its time runs from a common start until the last worker
has it. After k rounds w is known, and every worker checks it, between the rounds and at the end:
a system that does not do the work is not measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

LEARNING_RATE = 0.125
PERIOD = 251  # prime, so that a block put in the wrong place shows
SAMPLE = 4096  # between rounds one element in 4,096 is checked: microseconds, and most pages touched


def _pattern(elements: int, every: int = 1) -> Floats:
    """1, 2, …, PERIOD, 1, 2, … of length `elements`, or one in `every` of it."""
    return (np.arange(0, elements, every) % PERIOD + 1).astype(np.float32)


def gradient(worker: int, elements: int) -> Floats:
    """Return what worker 1, 2, …, R pushes in every round: its number times the pattern."""
    return worker * _pattern(elements)


def apply_sum(parameters: Floats, total: Floats, workers: int) -> None:
    """Apply the server's update from the sum of the gradients, which is overwritten."""
    total *= LEARNING_RATE / workers
    parameters -= total


def check(parameters: Floats, workers: int, rounds: int, every: int = 1) -> None:
    """Check that `parameters` are zeros after `rounds` updates; one element in `every` is looked at.

    Raises:
        ValueError: they are not.
    """
    seen = parameters[::every]
    mean_factor = (workers + 1) / 2  # of the workers' numbers 1 … R
    expected = _pattern(parameters.size, every) * np.float32(-LEARNING_RATE * mean_factor * rounds)
    wrong = np.flatnonzero(~np.isclose(seen, expected, rtol=1e-5))
    if wrong.size:
        first = wrong[0]
        raise ValueError(
            f"after {rounds} rounds {wrong.size} of {seen.size} parameters are wrong: "
            f"number {first * every} is {seen[first]}, not {expected[first]}"
        )
