"""A training so small that all its numbers are exact: what lab 12 brings through a death.

The model is a point, and the loss half its squared distance from each sample. Samples are whole
numbers, and the learning rate and the momentum are powers of two: so a sum is the same to the last
bit however it is divided, and one wrong sample shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

BATCH = 12
LEARNING_RATE = 2.0**-5
MOMENTUM = 0.5
DROPPED = 0.5  # share of the coordinates, where any are


class Worker:
    """One worker's copy of the model, and what it takes to train it.

    Attributes:
        number: its rank at the start of the training; ranks change when one dies, this does not.
        step: the step to take next, which is the number of updates made.
        parameters, momentum: the model, and what the optimizer remembers; the same on all workers.
        gradient: what `compute` has added up since the last `update`.
        random: the worker's own random numbers; `compute` draws some.
    """

    def __init__(self, number: int, dropout: bool = False) -> None:
        self.number, self.dropout = number, dropout
        self.step = 0
        self.parameters, self.momentum, self.gradient = np.zeros(2), np.zeros(2), np.zeros(2)
        self.random = Random(number)

    def batch(self) -> list[int]:
        """Return the numbers of all samples of this step, whichever workers remain."""
        return list(range(self.step * BATCH, (self.step + 1) * BATCH))

    def compute(self, samples: Sequence[int]) -> None:
        """Add to `gradient` the sum of these samples' gradients. Once per step: it draws random numbers."""
        kept = np.array([not self.dropout or self.random.random() >= DROPPED for _ in self.parameters])
        for sample in samples:
            self.gradient += kept * (self.parameters - data(sample))

    def update(self) -> None:
        """Move the parameters by `gradient`, clear it, and go to the next step."""
        self.momentum *= MOMENTUM
        self.momentum += self.gradient
        self.parameters -= LEARNING_RATE * self.momentum
        self.gradient[:] = 0
        self.step += 1


def data(sample: int) -> np.ndarray:
    """Two whole numbers, with no two samples alike."""
    return np.array([sample * 7 % 31, sample * sample % 37], dtype=np.float64)
