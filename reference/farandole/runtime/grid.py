"""Grids of communicators: which ranks form a row, which a column.

With axes data=2, pipeline=3 six ranks stand in two rows of three, the last axis varying fastest:

    rank = data * 3 + pipeline          0 1 2
                                        3 4 5

``grid.axis("pipeline")`` is then the communicator of the own row, ``grid.axis("data")`` that of
the own column.
"""

from __future__ import annotations

import math

from farandole.errors import UsageError
from farandole.runtime.communicator import Communicator


class Grid:
    """The ranks of `comm` arranged along named axes. Collective.

    Raises:
        UsageError: the axes' lengths do not multiply to the number of ranks.
    """

    def __init__(self, comm: Communicator, **lengths: int) -> None:
        if math.prod(lengths.values()) != comm.size or min(lengths.values(), default=1) < 1:
            product = " × ".join(f"{name} {length}" for name, length in lengths.items())
            raise UsageError(f"{product} is not {comm.size}: the axes must multiply to the number of ranks")
        self.lengths = lengths
        self.coordinates = coordinates(comm.rank, lengths)
        self._axes = {name: self._line(comm, name) for name in lengths}

    def axis(self, name: str) -> Communicator:
        """The ranks that differ from this one along `name` only, in that axis's order."""
        return self._axes[name]

    def _line(self, comm: Communicator, name: str) -> Communicator:
        others = {axis: length for axis, length in self.lengths.items() if axis != name}
        color = 0
        for axis, length in others.items():
            color = color * length + self.coordinates[axis]
        return comm.split(color, key=self.coordinates[name])


def coordinates(rank: int, lengths: dict[str, int]) -> dict[str, int]:
    """Where `rank` stands on each axis."""
    place = {}
    for name, length in reversed(lengths.items()):
        rank, place[name] = divmod(rank, length)
    return {name: place[name] for name in lengths}
