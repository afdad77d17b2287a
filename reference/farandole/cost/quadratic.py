"""The model of learning in a simulation: the quadratic ½Σhᵢxᵢ² from x = 1, with noisy gradients hᵢxᵢ + σZ.

The staleness of a gradient, and copies that are apart, cost learning here as they do in a training: a gradient is the
one at the parameters that were read, whenever it is applied. The time at which the loss reaches its goal is noted.
"""

from __future__ import annotations

import numpy as np

from farandole.cost.setting import Outcome, Setting, Vector
from farandole.decentralised.mixing import consensus_error

CURVATURES = np.array([1.0, 0.5, 0.2, 0.1])
ROWS_OF_NOISE = 1 << 14


class Quadratic:
    """One vector that all workers share."""

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        self.x = np.ones(len(CURVATURES))
        self._slope = CURVATURES * self.x
        self._rng = np.random.default_rng([setting.seed, 1])
        self._noise, self._row = np.empty((0, len(self.x))), 0
        self._setting, self._outcome = setting, outcome
        self._goal = setting.target * self.loss
        self._unseen = 0

    @property
    def loss(self) -> float:
        return self.loss_at(self.x)

    @staticmethod
    def loss_at(x: Vector) -> float:
        return float(CURVATURES @ (x * x)) / 2

    def gradient(self) -> Vector:
        """Return the gradient at x as it is now, with one worker's noise."""
        if self._row == len(self._noise):
            shape = ROWS_OF_NOISE, len(self.x)
            self._noise, self._row = self._rng.normal(scale=self._setting.noise, size=shape), 0
        self._row += 1
        seen: Vector = self._slope + self._noise[self._row - 1]
        return seen

    def move(self, gradient: Vector, gradients: int, now: float) -> None:
        """Update x by a sum of `gradients` gradients. Whether the goal is reached is looked at ten times a step."""
        self.x = self.x - self._setting.lr * gradient
        self._slope = CURVATURES * self.x
        self._unseen += gradients
        if self._outcome.to_loss_s is None and self._unseen * 10 >= self._setting.workers:
            self._unseen = 0
            if self.loss <= self._goal:
                self._outcome.to_loss_s = now


class Copies:
    """A vector for each worker; the loss is the mean of theirs."""

    def __init__(self, setting: Setting, outcome: Outcome) -> None:
        self.x = np.ones((setting.workers, len(CURVATURES)))
        self._setting, self._outcome = setting, outcome
        self._goal = setting.target * self.loss

    @property
    def loss(self) -> float:
        return float(((self.x * self.x) @ CURVATURES).mean()) / 2

    def look(self, now: float) -> None:
        """Note the time if the goal is reached."""
        if self._outcome.to_loss_s is None and self.loss <= self._goal:
            self._outcome.to_loss_s = now

    def finish(self) -> None:
        """Note the loss at the end, and how far the copies are apart."""
        self._outcome.final_loss, self._outcome.consensus_error = self.loss, consensus_error(self.x)
