"""Two collective calls, all_reduce and broadcast, counted: what lab 16's loop communicates with.

Every call first compares on all ranks which call it is. A rank that makes another call than the others, or none, is an
error that says so, on all ranks, where MPI would mix up the messages or wait for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from farandole.runtime.communicator import Buffer
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.labs import Wrong
from farandole_tools.lab.rank_status import named

CALLS = ("all_reduce", "broadcast", "return")
RETURN = "return"  # not a call of the learner's: a check has got the control back


class Call(NamedTuple):
    """One collective call of this rank."""

    name: str
    elements: int
    kind: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        return self.elements * self.kind.itemsize


class DifferentCalls(ValueError):
    """The ranks make different calls; raised on all of them."""


class OthersInCall(DifferentCalls, Wrong):
    """This rank has returned from the learner's function, and others are still in a call."""


class CollectiveCommunicator:
    """Collective calls between ranks 0 … size − 1.

    Args:
        before: is told the name of each call before it is made.

    Attributes:
        rank, size: this process's number, and how many there are.
        calls: this rank's, in order.
        differ: the ranks have made different calls, as all of them know.
    """

    def __init__(self, comm: LabCommunicator, before: Callable[[str], None] = lambda name: None) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.calls: list[Call] = []
        self.differ = False
        self._comm, self._before = comm, before

    def all_reduce(self, vector: Buffer) -> None:
        """Replace `vector` by its sum over all ranks. Collective.

        Raises:
            TypeError: it is no contiguous array of float32 or float64.
            DifferentCalls: the ranks make different calls, or give vectors of different lengths or types.
        """
        _check_array("all_reduce", vector)
        if vector.dtype not in (np.float32, np.float64):
            raise TypeError(f"all_reduce takes an array of float32 or float64, not of {vector.dtype}")
        self._meet("all_reduce", vector)
        first, *others = self._comm.everybodys(vector.reshape(-1), "all_reduce")
        total = first.copy()
        for each in others:  # in the same order on all ranks: the sums have the same bits
            total += each
        vector.reshape(-1)[:] = total

    def broadcast(self, array: Buffer, source: int = 0) -> None:
        """Fill `array` on every rank with that of rank `source`. Collective.

        Raises:
            TypeError: it is no contiguous array of numbers.
            DifferentCalls: the ranks make different calls, or give arrays of different lengths or types.
        """
        _check_array("broadcast", array)
        if not 0 <= source < self.size:
            raise ValueError(f"broadcast: there is no rank {source}; the ranks are 0 to {self.size - 1}")
        self._meet("broadcast", array, source)
        as_bytes = array.reshape(-1).view(np.uint8)
        sent = self._comm.everybodys(as_bytes if self.rank == source else as_bytes[:0], "broadcast")[source]
        as_bytes[:] = sent

    def returned(self) -> None:
        """Make sure that all ranks have come back from the learner's function. Collective, and for the checks only.

        Raises:
            OthersInCall: some are still in a call.
        """
        try:
            self._meet(RETURN, np.empty(0))
        except DifferentCalls as error:
            raise OthersInCall(str(error)) from None

    def raise_first(self, problem: str, when: int = 0) -> None:
        """Raise, on all ranks, the problem of the rank with the smallest `when`, if any has one. For the checks only.

        Raises:
            Wrong: some rank's `problem` is not empty.
        """
        everybodys = self._comm.everybodys(np.frombuffer(problem.encode(), dtype=np.uint8))
        times = self._comm.everybodys(np.array([when]))
        given = [(int(time[0]), rank) for rank, time in enumerate(times) if everybodys[rank].size]
        if given:
            raise Wrong(everybodys[min(given)[1]].tobytes().decode())

    def _meet(self, name: str, array: Buffer, source: int = 0) -> None:
        if name != RETURN:
            self._before(name)
            self.calls.append(Call(name, array.size, array.dtype))
        here = np.array([CALLS.index(name), array.size, ord(array.dtype.char), source], dtype=np.int64)
        groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank, head in enumerate(self._comm.everybodys(here, name if name != RETURN else "the comparison")):
            groups[tuple(head.tolist())].append(rank)
        if len(groups) > 1:
            self.differ = True
            types = len({head[2] for head in groups if CALLS[head[0]] != RETURN}) > 1
            told = "; ".join(f"{named(ranks)} {_told(head, ranks, types)}" for head, ranks in groups.items())
            raise DifferentCalls(f"{told}: all ranks have to make the same calls in the same order")


def _told(head: tuple[int, ...], ranks: list[int], types: bool) -> str:
    call, elements, kind, source = head
    one = len(ranks) == 1
    if CALLS[call] == RETURN:
        return f"{'has' if one else 'have'} returned"
    what = f"{elements:,} numbers" + (f" of type {np.dtype(chr(kind))}" if types else "")
    origin = f" from rank {source}" if CALLS[call] == "broadcast" else ""
    return f"{'calls' if one else 'call'} {CALLS[call]} with {what}{origin}"


def _check_array(call: str, array: Buffer) -> None:
    if not isinstance(array, np.ndarray):
        hint = ": tensor.numpy() is the same memory" if type(array).__name__ in ("Tensor", "Parameter") else ""
        raise TypeError(f"{call} takes a numpy array, not {type(array).__name__}{hint}")
    if array.dtype.hasobject:
        raise TypeError(f"{call} takes an array of numbers, not of Python objects")
    if not array.flags.c_contiguous:
        raise ValueError(f"{call} takes a contiguous array")
