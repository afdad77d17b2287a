"""Lab 6: a small parameter server: which server holds which parameters, and how they are pushed and pulled.

Complete what raises NotImplementedError, then: farandole lab check 6
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

# What a worker asks of a server. Each request begins with three whole numbers,
# np.array([PUSH, range number, clock]), and in detail:
#     PUSH  then sends the gradient of that range; receives the acknowledgement, np.array([1]) if
#           the push has been applied, np.array([0]) if it was a duplicate
#     PULL  then receives the parameters of that range (the clock means nothing, say 0)
#     DONE  asks for nothing more in this round (range number and clock mean nothing, say 0)
# All numbers in messages are int64, all gradients and parameters float64.
PUSH, PULL, DONE = 0, 1, 2


def cut(keys: int, ranges: int) -> list[range]:
    """The keys 0 … keys − 1 in contiguous ranges, in order, whose lengths differ by at most one.

    Args:
        keys, ranges: 1 <= ranges <= keys.
    """
    raise NotImplementedError


class HashRing:
    """Consistent hashing: servers and keys on one circle; a key belongs to the next server clockwise.

    Args:
        servers: their numbers, in any order; the order makes no difference.
        virtual_nodes: at how many points of the circle each server stands.
    """

    def __init__(self, servers: Sequence[int], virtual_nodes: int = 64) -> None:
        raise NotImplementedError

    def server_of(self, key: int) -> int:
        """The server that holds `key`; every process comes to the same answer."""
        raise NotImplementedError


def moving(ranges: Sequence[range], servers: Sequence[int], new: int) -> list[int]:
    """The numbers of the ranges that change their server when server `new` joins `servers`.

    A range goes as a whole, with its first key. Ranges are numbered as they stand in `ranges`;
    the result is in ascending order. What is given to the function stays as it is.
    """
    raise NotImplementedError


class Store:
    """The parameters that one server holds.

    Args:
        parts: range number → the parameters of that range. The arrays now belong to the store.
        rate: the learning rate.
    """

    def __init__(self, parts: dict[int, np.ndarray], rate: float) -> None:
        raise NotImplementedError

    def push(self, number: int, worker: int, clock: int, gradient: np.ndarray) -> bool:
        """Move the parameters of range `number` by −rate · gradient, unless this is a duplicate.

        A worker's pushes for one range have growing clocks. One with a clock that the store has had
        from this worker for this range, or an older one, is a duplicate, and changes nothing.

        Returns:
            whether the gradient has been applied.
        """
        raise NotImplementedError

    def pull(self, number: int) -> np.ndarray:
        """The parameters of range `number` as they are now; later pushes do not change the result."""
        raise NotImplementedError


def serve(store: Store, ranges: Sequence[range], workers: Sequence[int], rounds: int, comm: LabCommunicator) -> None:
    """The server's part: in each round serve the workers one after the other, each until it says DONE.

    Args:
        ranges: all ranges, of the other servers too; a range's number is its place here.
        workers: the workers' ranks, in the order in which they are served.
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.send(array, to)           returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message of rank `source`
    """
    raise NotImplementedError


class Client:
    """A worker's part.

    Args:
        ranges: all ranges; a range's number is its place here.
        holders: for each range, the rank of the server that holds it. Every server holds some.
        comm: as in `serve`.
    """

    def __init__(self, ranges: Sequence[range], holders: Sequence[int], comm: LabCommunicator) -> None:
        raise NotImplementedError

    def push(self, numbers: Sequence[int], clock: int, gradient: np.ndarray) -> int:
        """Push some ranges of a gradient; returns once each has been acknowledged.

        Args:
            numbers: of the ranges to push.
            gradient: one value for each of all keys, also of those that are not pushed.

        Returns:
            how many of the ranges were applied, and no duplicates.
        """
        raise NotImplementedError

    def pull(self, numbers: Sequence[int], parameters: np.ndarray) -> None:
        """Fetch some ranges into their places in `parameters`, which has one value for each of all keys."""
        raise NotImplementedError

    def end_round(self) -> None:
        """Say DONE to every server, so that it serves the next worker."""
        raise NotImplementedError
