"""Lab 5: compute in 16 bits, keep the parameters in 32.

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
    """The loss scale: the factor by which the loss is multiplied before the backward pass.

    Args:
        value: the initial factor; a power of two, at least 1.
        patience: the number of consecutive steps without overflow after which a larger factor is tried.

    Attributes:
        value: the factor for the next step.
    """

    def __init__(self, value: float = 2.0**16, patience: int = 2000) -> None:
        raise NotImplementedError

    def observe(self, finite: bool) -> None:
        """Record the outcome of a step, and choose the factor for the next one.

        After a step with an overflow, halve the factor, but not below 1. After `patience` consecutive steps without
        overflow, double it. In both cases the count of steps restarts at 0.

        Args:
            finite: whether all of the step's gradients were finite; False means overflow.
        """
        raise NotImplementedError


class MixedPrecision:
    """A network that computes in float16 and is trained synchronously with its copies on all other ranks.

    Args:
        network: network.backward(half, samples, scale) returns the gradient of scale times the mean loss over the
            samples, one vector of float16; `half` holds the parameters, also one vector of float16.
        values: the initial parameters, one vector of float32; the same on all ranks.
        rate: the learning rate: the parameters move by −rate times the gradient.
        scale: scale.value is the factor to use; call scale.observe(finite) once for every step. The checks do not use
            your own LossScale here.
        comm: this rank's communicator:
            comm.rank, comm.size       this rank's number, and the number of ranks
            comm.all_reduce(vector)    replaces the vector with its sum over all ranks

    Attributes:
        master: the parameters, one vector of float32; the same on all ranks after every step.
    """

    def __init__(
        self, network: HalfNetwork, values: np.ndarray, rate: float, scale: LossScale, comm: SummingCommunicator
    ) -> None:
        raise NotImplementedError

    def step(self, samples: Sequence[int], share: float) -> None:
        """Compute the gradient of this rank's samples, sum it over all ranks, and update.

        Every rank calls this at the same time, with its own samples. It calls all_reduce once, with the whole
        gradient in float32, and sends nothing else. If any rank has an overflow, no rank changes its parameters.

        Args:
            samples: this rank's part of the batch; it may be empty.
            share: this rank's fraction of the whole batch, between 0 and 1; the shares of all ranks sum to 1. The
                update uses the sum over all ranks of share times gradient.
        """
        raise NotImplementedError
