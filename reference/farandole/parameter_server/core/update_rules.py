"""The update rules of a server, each applied in place to a part of a table.

A rule receives the table's `values`, the `rows` to update, and the weighted sum g of the gradients for them. The rows
are a slice (dense, a range of keys) or an array of distinct row numbers (sparse). A rule with state keeps it in arrays
like the table, so the state of a row without a gradient does not change either.

    sgd        w ← w − ηg                                     Robbins & Monro 1951
    momentum   v ← μv + g;  w ← w − ηv                        Polyak 1964
    adagrad    a ← a + g²;  w ← w − ηg / (√a + ε)             Duchi et al. 2011; Downpour's rule
    adam       m, v: running means of g, g²;  w ← w − ηm̂ / (√v̂ + ε)         Kingma & Ba 2015

The formulas are those of torch.optim, to which the tests compare them. Adagrad and Adam divide by
the gradient's own size: one worker's share of a gradient moves the parameters as far as the whole.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
Rows = slice | NDArray[np.integer[Any]]


def axpy(weight: float, x: Array, y: Array) -> None:
    """y ← y + weight · x in place, as BLAS calls it: one pass over memory, where numpy needs two and room for one."""
    torch.from_numpy(y).add_(torch.from_numpy(x), alpha=weight)


class UpdateRule(Protocol):
    """The update rule of one table."""

    def begin(self) -> None:
        """The next update begins; `apply` will be called for its parts."""

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        """Move `values[rows]`.

        Args:
            total: Σ weight · pushed over the pushes of this update, like `values[rows]`; may be overwritten.
            weight: Σ weight.
        """


def memory(rule: UpdateRule) -> dict[str, Array]:
    """Return a rule's state per key: its arrays like the table, by name. SGD has none, Adam two."""
    return {name: value for name, value in vars(rule).items() if isinstance(value, np.ndarray)}


class SGD:
    def __init__(self, lr: float) -> None:
        self.lr = lr

    def begin(self) -> None:
        pass

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        if isinstance(rows, slice):
            axpy(-self.lr, total, values[rows])
        else:
            values[rows] -= self.lr * total


class Momentum:
    def __init__(self, like: Array, lr: float, momentum: float = 0.9) -> None:
        self.lr, self.momentum = lr, momentum
        self.velocity = np.zeros_like(like)

    def begin(self) -> None:
        pass

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        self.velocity[rows] = self.momentum * self.velocity[rows] + total
        values[rows] -= self.lr * self.velocity[rows]


class Adagrad:
    def __init__(self, like: Array, lr: float, epsilon: float = 1e-10) -> None:
        self.lr, self.epsilon = lr, epsilon
        self.sum_of_squares = np.zeros_like(like)

    def begin(self) -> None:
        pass

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        self.sum_of_squares[rows] += total * total
        values[rows] -= self.lr * total / (np.sqrt(self.sum_of_squares[rows]) + self.epsilon)


class Adam:
    def __init__(
        self, like: Array, lr: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> None:
        self.lr, self.betas, self.epsilon = lr, betas, epsilon
        self.mean, self.mean_square = np.zeros_like(like), np.zeros_like(like)
        self.updates = 0

    def begin(self) -> None:
        self.updates += 1

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        first, second = self.betas
        self.mean[rows] = first * self.mean[rows] + (1 - first) * total
        self.mean_square[rows] = second * self.mean_square[rows] + (1 - second) * total * total
        root = np.sqrt(self.mean_square[rows] / (1 - second**self.updates))
        values[rows] -= self.lr / (1 - first**self.updates) * self.mean[rows] / (root + self.epsilon)


class Blend:
    """Document 000's update, for pushed parameters x instead of gradients: w ← (1−α)/n·Σx + αw.

    If only some have pushed, w moves by their part of it: w ← w + (1−α)·Σ weight·(x − w).
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def begin(self) -> None:
        pass

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        values[rows] += (1 - self.alpha) * (total - weight * values[rows])


class Add:
    """The elastic move's other half (`contributions`): w ← w + Σδ, unweighted, since each worker moved by its δ."""

    def begin(self) -> None:
        pass

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        values[rows] += total


class Twice:
    """Document 000's second aggregation (`double_aggregation`): G ← Σ weight·g, then w ← Σ weight·x − ηG.

    Args:
        again: whether the aggregated parameters descend along the gradient once more.
    """

    def __init__(self, like: Array, lr: float, *, again: bool = True) -> None:
        self.lr, self.again = lr, again
        self._gradient = np.zeros_like(like)
        self._has_gradient = False

    def begin(self) -> None:
        self._has_gradient = not self._has_gradient

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        if self._has_gradient:
            values[rows] = self._gradient[rows] = total
        else:
            values[rows] = total - self.lr * self._gradient[rows] if self.again else total
