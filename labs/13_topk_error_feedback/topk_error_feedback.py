"""Lab 13: send only the largest entries of a gradient, and lose none of the others.

Complete the six functions, then: farandole lab check 13
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def largest(vector: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k entries of largest magnitude.

    Args:
        k: from 0 to the length of the vector.

    Returns:
        The indices, int32, ascending. Ties may be broken in any way.
    """
    raise NotImplementedError


def compress(gradient: np.ndarray, residual: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose the entries to send from the gradient plus the residual of earlier calls.

    Args:
        gradient: float32; not changed.
        residual: float32, of the same length: everything that has not been sent so far. It is updated in place to what
            remains unsent after this call.

    Returns:
        The indices of the k entries to send (as from `largest`), and their values, float32.
    """
    raise NotImplementedError


def pack(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return k places (indices) and k values as one message: 8k bytes, a vector of uint8."""
    raise NotImplementedError


def unpack(payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places, int32, and the values, float32, of a message made by `pack`."""
    raise NotImplementedError


def sum_of_all(places: np.ndarray, values: np.ndarray, length: int, comm: LabCommunicator) -> np.ndarray:
    """Return the sum of all ranks' sparse vectors, as a dense vector.

    Every rank calls this at the same time, with the same number of entries. All ranks end with the same bits.

    Args:
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.send(array, to)           sends `array`; returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message from rank `source`
            comm.exchange(send, to, receive, source)    does both at the same time, with two arrays

    Returns:
        float32, of `length` entries: 0 where no rank has sent an entry, the sum where several have.

    Cost: each rank sends P − 1 messages of 8k bytes.
    """
    raise NotImplementedError


def compress_with_momentum(
    gradient: np.ndarray, velocity: np.ndarray, residual: np.ndarray, momentum: float, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the entries to send, as `compress` does, after applying momentum (deep gradient compression).

    velocity ← momentum·velocity + gradient;  residual ← residual + velocity;  send the largest of the residual. The
    entries sent are set to 0 in both arrays; otherwise old momentum would add to them again and again. Both are updated
    in place.
    """
    raise NotImplementedError
