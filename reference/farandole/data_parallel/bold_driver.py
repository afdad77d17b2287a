"""A learning rate that follows the observed error (自适应学习率): up while it falls, down when it rises.

    error fell       η ← 1.05·η
    error rose       η ← 0.5·η, and the steps that made it rise are undone: w ← w as it was before them

Small steps up, large ones down: too small a rate costs time, too large a rate costs the training. Losses of single
batches jump, so means over a window of steps are compared, and a whole window is undone. The next window has other
batches. Each undoing therefore raises the loss to compare with by a tenth, so that later windows need not reach that of
one easy window. The optimizer's state belongs to the wrong direction, and is reset to zero.

Cost: a copy of the parameters, one pass over it per window, and the steps of each window that is undone. Sources:
Battiti, "Accelerated backpropagation learning: two optimization methods", 1989, who called it the bold driver; Vogl et
al., "Accelerating the convergence of the back-propagation method", 1988, who set the momentum to 0 then.
"""

from __future__ import annotations

from math import inf, isfinite

UP, DOWN = 1.05, 0.5
TOLERANCE = 1.02  # a mean of a few batches may be so much larger without meaning anything
RELAX = 1.1


class BoldDriver:
    """Decides on the rate. All ranks decide alike, since all have the same mean losses.

    Attributes:
        lr: the rate now.
        before: the loss that the next mean is compared with; a driver made with `lr` and `before` continues this one.
        undo: whether the steps between the last two observations must be undone.
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
