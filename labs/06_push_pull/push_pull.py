"""Lab 6: a small parameter server: which server holds which parameters, and how they are pushed and pulled.

Complete what raises NotImplementedError, then: farandole lab check 6
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

# The requests of a worker to a server. Each begins with three integers,
# np.array([PUSH, range number, clock]), and continues by its kind:
#     PUSH  sends the gradient of that range, then receives the acknowledgement, np.array([1]) if
#           the push has been applied, np.array([0]) if it was a duplicate
#     PULL  receives the parameters of that range (the clock is ignored; send 0)
#     DONE  ends the worker's round (range number and clock are ignored; send 0)
# All numbers in messages are int64, all gradients and parameters float64.
PUSH, PULL, DONE = 0, 1, 2


def cut(keys: int, ranges: int) -> list[range]:
    """Return the keys 0 … keys − 1 as contiguous ranges, in order, whose lengths differ by at most one.

    Args:
        keys, ranges: 1 <= ranges <= keys.
    """
    raise NotImplementedError


class HashRing:
    """Consistent hashing: servers and keys lie on one circle, and a key belongs to the next server clockwise.

    Args:
        servers: their numbers, in any order; the order makes no difference.
        virtual_nodes: the number of points of each server on the circle.
    """

    def __init__(self, servers: Sequence[int], virtual_nodes: int = 64) -> None:
        raise NotImplementedError

    def server_of(self, key: int) -> int:
        """Return the server that holds `key`. Every process computes the same result."""
        raise NotImplementedError


def moving(ranges: Sequence[range], servers: Sequence[int], new: int) -> list[int]:
    """Return the numbers of the ranges that change their server when server `new` joins `servers`.

    A range moves as a whole: the server of its first key holds all of it. A range's number is its
    index in `ranges`. The result is in ascending order. The arguments are not changed.
    """
    raise NotImplementedError


class Store:
    """The parameters that one server holds.

    Args:
        parts: range number → the parameters of that range. The store owns the arrays and may change them.
        rate: the learning rate.
    """

    def __init__(self, parts: dict[int, np.ndarray], rate: float) -> None:
        raise NotImplementedError

    def push(self, number: int, worker: int, clock: int, gradient: np.ndarray) -> bool:
        """Move the parameters of range `number` by −rate · gradient, unless this is a duplicate.

        A worker's pushes for one range have increasing clocks. A push is a duplicate, and changes
        nothing, if its clock is not above the highest one received from this worker for this range.

        Returns:
            Whether the gradient has been applied.
        """
        raise NotImplementedError

    def pull(self, number: int) -> np.ndarray:
        """Return the current parameters of range `number`. Later pushes do not change the result."""
        raise NotImplementedError


def serve(store: Store, ranges: Sequence[range], workers: Sequence[int], rounds: int, comm: LabCommunicator) -> None:
    """Run a server: in each round serve the workers one after the other, each until it sends DONE.

    Args:
        ranges: all ranges, those of the other servers included; a range's number is its index here.
        workers: the workers' ranks, in the order in which they are served.
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.send(array, to)           sends `array`; returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message from rank `source`
    """
    raise NotImplementedError


class Client:
    """A worker's client of the parameter servers.

    Args:
        ranges: all ranges; a range's number is its index here.
        holders: for each range, the rank of the server that holds it. Every server holds at least one.
        comm: as in `serve`.
    """

    def __init__(self, ranges: Sequence[range], holders: Sequence[int], comm: LabCommunicator) -> None:
        raise NotImplementedError

    def push(self, numbers: Sequence[int], clock: int, gradient: np.ndarray) -> int:
        """Push some ranges of a gradient; return once each has been acknowledged.

        Args:
            numbers: the numbers of the ranges to push.
            gradient: one value for every key, including keys that are not pushed.

        Returns:
            The number of ranges that were applied; duplicates do not count.
        """
        raise NotImplementedError

    def pull(self, numbers: Sequence[int], parameters: np.ndarray) -> None:
        """Pull some ranges and write them into `parameters`, which has one value for every key."""
        raise NotImplementedError

    def end_round(self) -> None:
        """Send DONE to every server, so that it serves the next worker."""
        raise NotImplementedError
