"""Lab 2: the mean of all ranks' gradients, passed from neighbour to neighbour.

Complete `ring_all_reduce_mean`, then: farandole lab check 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def ring_all_reduce_mean(gradient: np.ndarray, comm: LabCommunicator) -> None:
    """Replace `gradient` on every rank by the mean of all ranks' gradients.

    Every rank calls this at the same time, each with its gradient.

    Args:
        gradient: a vector of any length, 0 included, float32 or float64; the same length and type
            on all ranks. The result is written into this same array; nothing is returned.
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.send(array, to)           returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message of rank `source`
            comm.exchange(send, to, receive, source)    both at the same time, with two arrays
    """
    raise NotImplementedError
