"""A learning rate that follows the observed error (自适应学习率): up while it falls, down when it rises.

    error fell       η ← 1.05·η
    error rose       η ← 0.5·η, and the steps that made it rise are undone: w ← w as it was before them

Small steps up, large ones down: too small a rate costs time, too large a one the training. Losses of single
batches jump, so means over a window of steps are compared, and it is a window that is undone. The next one has other
batches; so that one easy window is not what all others fail to reach, each undoing raises by a tenth what is compared
with. What the optimizer remembers is of the direction that was wrong, and starts from zero.

Cost: a copy of the parameters, one pass over it a window, and the window's steps where it is undone. Sources: Battiti,
"Accelerated backpropagation learning: two optimization methods", 1989, who called it the bold driver; Vogl et al.,
"Accelerating the convergence of the back-propagation method", 1988, who set the momentum to 0 then.
"""

from __future__ import annotations

from math import inf, isfinite

UP, DOWN = 1.05, 0.5
TOLERANCE = 1.02  # a mean of a few batches may be so much larger without meaning anything
RELAX = 1.1


class BoldDriver:
    """Decides on the rate, the same way on all ranks, for all see the same mean losses.

    Attributes:
        lr: the rate now.
        before: what the next mean loss is compared with; with both, another driver goes on.
        undo: the steps between the last two observations are to be undone.
    """

    def __init__(self, lr: float, before: float | None = None) -> None:
        self.lr, self.before, self.undo = lr, before, False

    def observe(self, loss: float) -> float:
        """The mean loss of some steps is known; returns the rate for the next ones."""
        before = inf if self.before is None else self.before
        self.undo = not isfinite(loss) or loss > TOLERANCE * before
        if self.undo:
            self.lr *= DOWN
            self.before = None if self.before is None else RELAX * self.before
            return self.lr
        if loss < before < inf:
            self.lr *= UP
        self.before = loss
        return self.lr
