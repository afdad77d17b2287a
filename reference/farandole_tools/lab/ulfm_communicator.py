"""The communicator of a learner's code when ranks may die: ULFM's verbs, and what they promise.

ULFM (User-Level Failure Mitigation; Bland et al., "Post-failure recovery of MPI communication
capability", 2013) promises little of an ordinary call in which a rank dies: a rank that waits for the dead
one gets `PeerLost`; another may have its result already; a third, which waits for a living rank that
has left the call, waits until the communicator is revoked. Three calls work whichever rank dies:
`revoke`, `agree` and `shrink`.

`over_mpi` has these verbs on real processes; `simulated_ranks` on simulated ones, which can be killed at each
call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from farandole.runtime.failure import PeerLost

if TYPE_CHECKING:
    from farandole.runtime.communicator import Buffer

__all__ = ["PeerLost", "UlfmCommunicator"]


class UlfmCommunicator(ABC):
    """Collective calls between ranks 0 … size − 1 of one group, some of which may have died.

    `all_reduce`, `all_gather` and `broadcast` raise `PeerLost` if the communicator has been revoked, or
    if this rank notices that a member is dead. The array is then undefined.
    """

    rank: int
    size: int

    def all_reduce(self, array: Buffer) -> None:
        """Put into `array` the sum over all ranks."""
        expect_array("all_reduce", array)
        self._all_reduce(array)

    def all_gather(self, number: int) -> list[int]:
        """Return the `number` of every rank, in the order of the ranks."""
        if not isinstance(number, int | np.integer):
            raise TypeError(f"all_gather takes a whole number, not {type(number).__name__}")
        return self._all_gather(int(number))

    def broadcast(self, array: Buffer, source: int) -> None:
        """Fill `array` on every rank with that of rank `source`."""
        expect_array("broadcast", array)
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


def expect_array(call: str, array: Buffer) -> None:
    """Check the argument of a call that fills an array.

    Raises:
        TypeError: it is none that MPI could fill.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not array.flags.c_contiguous:
        kind = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{call} takes contiguous numpy arrays of float64, not {kind}")
