"""Corrections for staleness, which a server may apply to a gradient before it counts.

A gradient of staleness τ was computed at parameters that τ updates by others have moved since.

    staleness-aware     η/τ instead of η (τ = 0 counts as 1)                  Zhang et al. 2016
    delay-compensated   g + λ·g⊙g⊙(w − w_then) instead of g                   Zheng et al. 2017

The second estimates the gradient at the present w from the one at w_then, with g⊙g in place of the Hessian. For it the
server keeps a copy of the parameters that each worker has last read: n times the table.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from farandole.parameter_server.core.update_rules import Rows

Array = NDArray[Any]


class Correction(Protocol):
    def reads(self, worker: int, values: Array) -> None:
        """`worker` has just been given these parameters."""

    def correct(self, gradient: Array, worker: int, staleness: int, values: Array, rows: Rows) -> Array:
        """Return the gradient that counts instead, for `values[rows]`."""


class StalenessAware:
    def reads(self, worker: int, values: Array) -> None:
        pass

    def correct(self, gradient: Array, worker: int, staleness: int, values: Array, rows: Rows) -> Array:
        scaled: Array = gradient / max(1, staleness)
        return scaled


class DelayCompensated:
    def __init__(self, strength: float) -> None:
        self.strength = strength
        self._read: dict[int, Array] = {}

    def reads(self, worker: int, values: Array) -> None:
        self._read[worker] = values.copy()

    def correct(self, gradient: Array, worker: int, staleness: int, values: Array, rows: Rows) -> Array:
        drift = values[rows] - self._read[worker][rows]
        compensated: Array = gradient + self.strength * gradient * gradient * drift
        return compensated
