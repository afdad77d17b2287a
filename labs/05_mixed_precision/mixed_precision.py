"""Lab 5: compute in 16 bits, remember in 32.

Complete `LossScale` and `MixedPrecision`, then: farandole lab check 5
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.half_network import HalfNetwork
    from farandole_tools.lab.summing import SummingCommunicator


class LossScale:
    """The number by which the loss is multiplied before backward.

    Args:
        value: to begin with; a power of two, at least 1.
        patience: the number of good steps in a row after which a larger number is tried.

    Attributes:
        value: the number for the next step.
    """

    def __init__(self, value: float = 2.0**16, patience: int = 2000) -> None:
        raise NotImplementedError

    def observe(self, finite: bool) -> None:
        """Take note of a step, and choose the number for the next one.

        After a step with an overflow it is half of what it was, but not less than 1. After `patience` steps without
        one it is twice what it was. Either way the counting begins anew.

        Args:
            finite: whether all of the step's gradients were; False: there was an overflow.
        """
        raise NotImplementedError


class MixedPrecision:
    """A network that is trained in step with its copies on all other ranks, and computes in float16.

    Args:
        network: network.backward(half, samples, scale) returns the gradient of scale times the mean loss over the
            samples, one vector of float16; half are the parameters, one vector of float16 as well.
        values: the parameters to begin with, one vector of float32; the same on all ranks.
        rate: the learning rate: the parameters move by −rate times the gradient.
        scale: scale.value is the number to use, and scale.observe(finite) is to be called once for every step. In the
            checks it is not your own LossScale.
        comm: this rank's connection to the others:
            comm.rank, comm.size       this rank's number, and how many ranks there are
            comm.all_reduce(vector)    replaces the vector by its sum over all ranks

    Attributes:
        master: the parameters, one vector of float32; the same on all ranks after every step.
    """

    def __init__(
        self, network: HalfNetwork, values: np.ndarray, rate: float, scale: LossScale, comm: SummingCommunicator
    ) -> None:
        raise NotImplementedError

    def step(self, samples: Sequence[int], share: float) -> None:
        """Compute the gradient of this rank's samples, add it up over all ranks, and update.

        Every rank calls this at the same time, with its samples. It calls all_reduce once, with the whole
        gradient in float32, and nothing else is sent. If there was an overflow, on whichever rank, no rank moves.

        Args:
            samples: this rank's part of the batch; perhaps none.
            share: which part of the whole batch these are, between 0 and 1; the shares of all ranks sum to 1. The
                gradient that all move by is each rank's, times its share, summed up.
        """
        raise NotImplementedError
