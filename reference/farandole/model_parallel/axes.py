"""The communicators of a grid: for each axis, or for several together, the ranks that this one talks to along it."""

from __future__ import annotations

from farandole.errors import UsageError
from farandole.model_parallel.grid import AXES, Grid
from farandole.runtime.communicator import Communicator


class Axes:
    """This rank's lines through the grid. Made by all ranks together.

    Attributes:
        place: this rank's coordinates, by axis.

    Raises:
        UsageError: the grid has another number of ranks.
    """

    def __init__(self, comm: Communicator, grid: Grid) -> None:
        if grid.ranks != comm.size:
            raise UsageError(f"{grid} is not {comm.size}: the axes must multiply to the number of ranks")
        self.comm, self.grid = comm, grid
        self.place = grid.place(comm.rank)
        self._axes = {axis: self.along(axis) for axis in AXES if grid.lengths[axis] > 1}
        self._alone = self.along() if len(self._axes) < len(AXES) else None

    def axis(self, name: str) -> Communicator:
        """Return the ranks that differ from this one along one axis only, in order."""
        found = self._axes.get(name, self._alone)
        assert found
        return found

    def named(self, *names: str) -> str:
        """Return a name for the ranks that differ from this one along these axes only, for the trace."""
        return f"{' × '.join(names)} from rank {self.grid.line(self.comm.rank, *names)[0]}"

    def along(self, *names: str) -> Communicator:
        """Return a new communicator of the ranks that differ from this one along these axes only. Collective."""
        return self.comm.split(self.grid.line(self.comm.rank, *names)[0], key=self.comm.rank)
