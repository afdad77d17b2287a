"""The place of one server's ranges in the client's table, from which they are sent and received without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py.util import dtlib
from numpy.typing import NDArray

from farandole.parameter_server.header import ROW_NUMBER
from farandole.parameter_server.keys import KeyRange


class Layout:
    """One server's ranges as one message.

    Args:
        shape: of the client's table: (keys,) or (rows, width).

    Attributes:
        keys: how many keys the server has.
        local_shape: of the server's own table.
        nbytes: the size of the message.
    """

    def __init__(self, ranges: Sequence[KeyRange], shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.ranges = list(ranges)
        self.width = int(np.prod(shape[1:], dtype=int))
        self.keys = sum(len(part) for part in ranges)
        self.local_shape = (self.keys, *shape[1:])
        self.nbytes = self.keys * self.width * dtype.itemsize
        lengths = [len(part) * self.width for part in ranges]
        starts = [part.start * self.width for part in ranges]
        # MPI gathers and scatters the ranges itself, so no copy is needed wherever they are in the table.
        self._type = dtlib.from_numpy_dtype(dtype).Create_indexed(lengths, starts).Commit()
        self._starts = np.array([part.start for part in ranges], dtype=np.int64)
        self._stops = np.array([part.stop for part in ranges], dtype=np.int64)
        self._local = np.concatenate([[0], np.cumsum(self._stops - self._starts)])[:-1].astype(np.int64)

    def of(self, table: NDArray[Any]) -> Any:
        """Return the server's ranges of `table`, in the form of MPI's buffers."""
        return [table, 1, self._type]

    def part(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of the server's ranges of `table`, one after the other."""
        return np.concatenate([table[part.start : part.stop] for part in self.ranges] or [table[:0]])

    def rows_here(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these global rows, ascending, the server holds."""
        if not len(self._starts):
            return np.zeros(len(rows), dtype=bool)
        number = np.searchsorted(self._starts, rows, side="right") - 1
        return (number >= 0) & (rows < self._stops[number])

    def to_local(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return row numbers within the server's part, for global rows that it holds."""
        number = np.searchsorted(self._starts, rows, side="right") - 1
        return (self._local[number] + rows - self._starts[number]).astype(ROW_NUMBER)
