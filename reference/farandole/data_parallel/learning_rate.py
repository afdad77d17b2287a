"""The learning rate (学习率) of each step: scaled to the batch, warmed up, and lowered again.

    linear scaling   peak = η·batch/b          for an η that was found with batches of b samples
    warm-up (预热)   η(t) = peak·(t + 1)/W     in the first W steps
    cosine           η(t) = peak·(1 + cos(π(t − W)/(T − W)))/2     from there to the last of T steps
    plateau          η ← η/10 whenever the loss has not fallen 4 times in a row

With P ranks and a batch P times as large, a step's gradient has P times less variance, and the steps are P times fewer:
linear scaling makes each as long as P of them. At the start, where the gradient changes most, so long a step is too
long: hence the warm-up. Document 001 lowers the rate "gradually", which is a schedule (erratum 001.16); its other rule,
which follows the error up and down, is `bold_driver`.

Cost: none. Sources: Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour", 2017 (scaling and
warm-up); Loshchilov & Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017 (cosine).
"""

from __future__ import annotations

from math import cos, inf, pi

from farandole.data_parallel.options import OptimizerOptions
from farandole.errors import UsageError

PATIENCE = 3  # mean losses in a row that are no better, and change nothing yet
LOWER = 0.1
BETTER = 1 - 1e-4  # of the best, or less: falls by rounding do not count


class LearningRate:
    """Decides on the rate. All ranks decide alike, since all have the same mean losses.

    Args:
        peak: the rate after the warm-up.
        steps: of the whole training.
        schedule: "constant", "cosine" or "plateau".
    """

    def __init__(self, peak: float, steps: int, warm_up: int = 0, schedule: str = "constant") -> None:
        self.peak, self.steps, self.warm_up, self.schedule = peak, steps, warm_up, schedule
        self.lowered = 1.0  # by the plateaus so far
        self._best, self._bad = inf, 0

    @classmethod
    def of(cls, options: OptimizerOptions) -> LearningRate:
        """Return the learning rate that the options describe.

        Raises:
            UsageError: a warm-up that never ends; losses that come too late.
        """
        if options.warm_up >= options.steps:
            raise UsageError(f"--warm-up {options.warm_up}: must be less than the {options.steps} steps")
        if options.lr_schedule == "plateau" and options.background_metrics:
            raise UsageError(
                "--lr-schedule plateau goes without --background-metrics: all ranks must know the loss at the same step"
            )
        scale = options.batch / options.lr_batch if options.lr_batch else 1.0
        return cls(options.lr * scale, options.steps, options.warm_up, options.lr_schedule)

    def at(self, step: int) -> float:
        """Return the rate of `step`, as far as it is known now."""
        if step < self.warm_up:
            return self.peak * (step + 1) / self.warm_up
        if self.schedule == "cosine":
            return self.peak * (1 + cos(pi * (step - self.warm_up) / (self.steps - self.warm_up))) / 2
        return self.peak * self.lowered

    def observe(self, loss: float) -> None:
        """Take in the mean loss of some steps, which only "plateau" uses."""
        if self.schedule != "plateau":
            return
        if loss < BETTER * self._best:
            self._best, self._bad = loss, 0
        else:  # worse, or not a number
            self._bad += 1
        if self._bad > PATIENCE:
            self.lowered *= LOWER
            self._bad = 0
