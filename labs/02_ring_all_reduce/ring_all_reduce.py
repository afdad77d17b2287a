"""Lab 2: the mean of all ranks' gradients, passed from neighbour to neighbour.

Complete `ring_all_reduce_mean`, then: farandole lab check 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def ring_all_reduce_mean(gradient: np.ndarray, comm: LabCommunicator) -> None:
    """Replace `gradient` on every rank with the mean of all ranks' gradients.

    Every rank calls this at the same time, each with its own gradient.

    Args:
        gradient: a vector of any length, 0 included, float32 or float64; the same length and type
            on all ranks. The result is written into this same array; nothing is returned.
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.send(array, to)           sends `array`; returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message from rank `source`
            comm.exchange(send, to, receive, source)    does both at the same time, with two arrays
    """
    raise NotImplementedError
