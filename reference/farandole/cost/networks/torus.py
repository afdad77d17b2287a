"""The torus: hosts in a grid of two or more dimensions, with closed rows and columns, each linked to its neighbours.

A host has two links for each dimension, and forwards what is not for it. A message first goes along the first dimension
until it is right, then along the second, and so on, each time the shorter way round (dimension-ordered routing). If
both ways are as long it goes up. Host i of sides (X, Y) is at (i mod X, i div X).

Neighbours do not disturb each other; a message over d links uses d of them, so n hosts that all send over a distance of
d need d times as much. Source: Dally & Seitz, "The torus routing chip", 1986.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

from farandole.cost.networks.network import Network, Wire


@dataclass(frozen=True)
class Torus(Network):
    """
    Attributes:
        sides: the length of each dimension, the one along which hosts are numbered first.
    """

    sides: tuple[int, ...]
    nearest = 1

    @property
    def hosts(self) -> int:
        return prod(self.sides)

    def route(self, source: int, target: int) -> list[Wire]:
        wires, here, stride = [], source, 1
        for side in self.sides:
            at, goal = here // stride % side, target // stride % side
            ahead = (goal - at) % side
            step = 1 if self._goes_up(at, goal, side) else -1
            for _ in range(min(ahead, side - ahead)):
                then = (at + step) % side
                there = here + (then - at) * stride
                wires.append((f"host {here} to host {there}", 1.0))
                at, here = then, there
            stride *= side
        return wires

    def _goes_up(self, at: int, goal: int, side: int) -> bool:
        return 2 * ((goal - at) % side) <= side


def square(hosts: int) -> Torus:
    """Return the torus of two dimensions with this number of hosts whose sides differ least."""
    short = next(side for side in range(isqrt(hosts), 0, -1) if hosts % side == 0)
    return Torus((hosts // short, short))
