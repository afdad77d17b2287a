"""A learning rate that follows the observed error (自适应学习率): up while it falls, down when it rises.

    loss fell       η ← 1.05·η
    loss rose       η ← 0.5·η

Small steps up, large ones down: too small a rate costs time, too large a one the training. Losses of single
batches jump, so means over some steps are compared. Source: Battiti, "Accelerated backpropagation
learning: two optimization methods", 1989, who called it the bold driver.
"""

from __future__ import annotations

UP, DOWN = 1.05, 0.5
TOLERANCE = 1.02  # a mean of a few batches may be so much larger without meaning anything


class BoldDriver:
    """Decides on the rate, the same way on all ranks, for all see the same mean losses.

    Attributes:
        lr: the rate now.
        before: the last mean loss; with both, another one goes on.
    """

    def __init__(self, lr: float, before: float | None = None) -> None:
        self.lr, self.before = lr, before

    def observe(self, loss: float) -> float:
        """The mean loss of some steps is known; returns the rate for the next ones."""
        if self.before is not None:
            if not loss <= TOLERANCE * self.before:  # nor a number
                self.lr *= DOWN
            elif loss < self.before:
                self.lr *= UP
        self.before = loss if loss == loss else self.before
        return self.lr
