"""Lab 3: an all-reduce with few rounds and few bytes: exchange halves of halves, then gather the finished parts.

Complete `halving_doubling_all_reduce`, then: farandole lab check 3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def halving_doubling_all_reduce(vector: np.ndarray, comm: LabCommunicator) -> None:
    """Replace `vector` on every rank with the sum of all ranks' vectors.

    Every rank calls this at the same time, each with its own vector. The number of ranks
    need not be a power of two.

    Args:
        vector: float32, of any length, 0 included; the same length on all ranks. The result is
            written into this same array; nothing is returned. The order of the
            additions is free, but all ranks end with the same bits. Allocate at most the size of
            `vector` in addition.
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.send(array, to)           sends `array`; returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message from rank `source`
            comm.exchange(send, to, receive, source)    does both at the same time, with two arrays
    """
    raise NotImplementedError
