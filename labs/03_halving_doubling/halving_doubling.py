"""Lab 3: the sum over all ranks in few rounds and few bytes: swap halves of halves, then give back what is finished.

Complete `halving_doubling_all_reduce`, then: farandole lab check 3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def halving_doubling_all_reduce(vector: np.ndarray, comm: LabCommunicator) -> None:
    """Replace `vector` on every rank by the sum of all ranks' vectors.

    Every rank calls this at the same time, each with its vector. How many ranks there are
    need not be a power of two.

    Args:
        vector: float32, of any length, 0 included; the same length on all ranks. The result is
            written into this same array; nothing is returned. It may be added up in any order, but
            all ranks have the same bits at the end. Beside it, take at most as much memory again.
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.send(array, to)           returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message of rank `source`
            comm.exchange(send, to, receive, source)    both at the same time, with two arrays
    """
    raise NotImplementedError
