"""One collective and no other, the sum over all ranks, noted: what lab 5's gradients travel by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from farandole.runtime.communicator import Buffer
from farandole_tools.lab.communicator import LabCommunicator


class Sum(NamedTuple):
    """The size of what was added up over all ranks: the number and the type of the elements."""

    elements: int
    kind: np.dtype[Any]


class SummingCommunicator:
    """Adds up vectors over ranks 0 … size − 1.

    Attributes:
        rank, size: this process's number, and how many there are.
        sums: what has been added up so far, in order.
    """

    def __init__(self, comm: LabCommunicator) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.sums: list[Sum] = []
        self._comm = comm

    def all_reduce(self, vector: Buffer) -> None:
        """Replace `vector` by its sum over all ranks, in its own type; returns when it is there. Collective.

        Raises:
            TypeError: it is no vector of floating-point numbers.
            ValueError: the ranks' vectors are not of one length.
        """
        if not isinstance(vector, np.ndarray) or vector.ndim != 1 or vector.dtype.kind != "f":
            raise TypeError("all_reduce takes a vector of floating-point numbers, a numpy array")
        self.sums.append(Sum(vector.size, vector.dtype))
        everybodys = self._comm.everybodys(vector.astype(np.float64), "all_reduce")  # of one type, whatever theirs are
        for rank, arrived in enumerate(everybodys):
            if arrived.size != vector.size:
                here, there = f"{vector.size} elements on rank {self.rank}", f"{arrived.size} on rank {rank}"
                raise ValueError(f"all_reduce is of {here} and of {there}: do all ranks call it equally often?")
        with np.errstate(all="ignore"):  # infinite, or no number, as the sum of such things is
            total = everybodys[0].astype(vector.dtype)
            for arrived in everybodys[1:]:
                total += arrived.astype(vector.dtype)
        vector[:] = total
