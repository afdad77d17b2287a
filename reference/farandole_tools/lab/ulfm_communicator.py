"""The communicator of a learner's code when ranks may die: ULFM's verbs, and what they promise.

ULFM (User-Level Failure Mitigation; Bland et al., "Post-failure recovery of MPI communication
capability", 2013) promises little of an ordinary call in which a rank dies: a rank that waits for the dead
one gets `PeerLost`; another may have its result already; a third, which waits for a living rank that
has left the call, waits until the communicator is revoked. Three calls work whichever rank dies:
`revoke`, `agree` and `shrink`.

`OverMpi` is these verbs on real processes; `simulated_ranks` has them on simulated ones, which can be
killed at each call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from farandole.runtime.communicator import LOST, Buffer
from farandole.runtime.failure import PeerLost

__all__ = ["OverMpi", "PeerLost", "UlfmCommunicator"]


class UlfmCommunicator(ABC):
    """Collective calls between ranks 0 … size − 1 of one group, some of which may have died.

    `all_reduce`, `all_gather` and `broadcast` raise `PeerLost` if the communicator has been revoked, or
    if this rank notices that a member is dead. The array is then undefined.
    """

    rank: int
    size: int

    def all_reduce(self, array: Buffer) -> None:
        """Put into `array` the sum over all ranks."""
        _expect_array("all_reduce", array)
        self._all_reduce(array)

    def all_gather(self, number: int) -> list[int]:
        """Return the `number` of every rank, in the order of the ranks."""
        if not isinstance(number, int | np.integer):
            raise TypeError(f"all_gather takes a whole number, not {type(number).__name__}")
        return self._all_gather(int(number))

    def broadcast(self, array: Buffer, source: int) -> None:
        """Fill `array` on every rank with that of rank `source`."""
        _expect_array("broadcast", array)
        if not 0 <= source < self.size:
            raise ValueError(f"broadcast: there is no rank {source}; the ranks are 0 to {self.size - 1}")
        self._broadcast(array, source)

    @abstractmethod
    def revoke(self) -> None:
        """End this communicator: a rank that waits in it, or calls it later, gets `PeerLost`; the next two work."""

    @abstractmethod
    def agree(self, flag: bool) -> bool:
        """Whether all have passed True and no rank was dead; the same answer on all living ranks.

        It waits for all living ranks, also when the communicator has been revoked, and never raises `PeerLost`.
        """

    @abstractmethod
    def shrink(self) -> UlfmCommunicator:
        """Return a communicator of the living ranks, in the same order.

        It waits for all living ranks, also when the communicator has been revoked, and never raises `PeerLost`.
        A rank that dies meanwhile may be in the new one or not.
        """

    @abstractmethod
    def _all_reduce(self, array: Buffer) -> None: ...

    @abstractmethod
    def _all_gather(self, number: int) -> list[int]: ...

    @abstractmethod
    def _broadcast(self, array: Buffer, source: int) -> None: ...


class OverMpi(UlfmCommunicator):
    """The verbs on real processes, by an MPI that has ULFM.

    Args:
        before: is told the name of each call before it is made; the communicators that follow tell it, too.
    """

    def __init__(self, mpi: MPI.Intracomm, before: Callable[[str], None] = lambda name: None) -> None:
        self.mpi, self.before = mpi, before
        self.rank, self.size = mpi.rank, mpi.size

    def revoke(self) -> None:
        self.before("revoke")
        self.mpi.Revoke()

    def agree(self, flag: bool) -> bool:
        self.before("agree")
        try:
            return bool(self.mpi.Agree(int(flag)))
        except MPI.Exception as error:
            if error.Get_error_class() in LOST:
                return False
            raise

    def shrink(self) -> OverMpi:
        self.before("shrink")
        return OverMpi(MPI.Intracomm(self.mpi.Shrink()), self.before)

    def _all_reduce(self, array: Buffer) -> None:
        self._call("all_reduce", lambda: self.mpi.Allreduce(MPI.IN_PLACE, array))

    def _all_gather(self, number: int) -> list[int]:
        numbers = np.empty(self.size, dtype=np.int64)
        self._call("all_gather", lambda: self.mpi.Allgather(np.array([number], dtype=np.int64), numbers))
        return [int(each) for each in numbers]

    def _broadcast(self, array: Buffer, source: int) -> None:
        self._call("broadcast", lambda: self.mpi.Bcast(array, source))

    def _call(self, name: str, call: Callable[[], object]) -> None:
        self.before(name)
        try:
            call()
        except MPI.Exception as error:
            if error.Get_error_class() in LOST:
                raise PeerLost(f"found a rank dead, or the communicator revoked, in {name}") from error
            raise


def _expect_array(call: str, array: Buffer) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
        kind = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{call} takes contiguous numpy arrays of float64, not {kind}")
