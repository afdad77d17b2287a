"""Lab 13: push the largest entries of a gradient, and lose none of the others.

Complete the six functions, then: farandole lab check 13
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def largest(vector: np.ndarray, k: int) -> np.ndarray:
    """Where the k entries of largest magnitude are.

    Args:
        k: from 0, none of them, to all.

    Returns:
        Their places, int32, ascending; of entries that are equally large any.
    """
    raise NotImplementedError


def compress(gradient: np.ndarray, residual: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose what to send of all that is owed: the new gradient, and what earlier calls have left.

    Args:
        gradient: float32; it is not changed.
        residual: float32, as long: what has not been sent so far. Afterwards it is what has not been sent now; it is
            changed in place.

    Returns:
        The places of the k entries sent (as `largest`), and their values, float32.
    """
    raise NotImplementedError


def pack(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """k places and k values as one message: 8k bytes, a vector of uint8."""
    raise NotImplementedError


def unpack(payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places, int32, and the values, float32, that `pack` has made a message of."""
    raise NotImplementedError


def sum_of_all(places: np.ndarray, values: np.ndarray, length: int, comm: LabCommunicator) -> np.ndarray:
    """The sum of all ranks' sparse vectors, as a whole one.

    Every rank calls this at the same time, with as many entries. All have the same bits at the end.

    Args:
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.send(array, to)           returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message of rank `source`
            comm.exchange(send, to, receive, source)    both at the same time, with two arrays

    Returns:
        float32, of `length` entries: 0 where no rank has sent anything, the sum where several have.

    Cost: each rank sends P − 1 messages of 8k bytes.
    """
    raise NotImplementedError


def compress_with_momentum(
    gradient: np.ndarray, velocity: np.ndarray, residual: np.ndarray, momentum: float, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `compress`, with momentum before the choice (deep gradient compression).

    velocity ← momentum·velocity + gradient;  residual ← residual + velocity;  send the largest of the residual. What is
    sent is cleared in both, or old momentum would push it on and on. Both are changed in place.
    """
    raise NotImplementedError
