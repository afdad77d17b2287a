"""Lab 17: training in which every rank keeps a part of the parameters and of what the optimizer remembers.

Complete what raises NotImplementedError, then: farandole lab check 17
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def reduce_scatter(vector: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return this rank's part of the sum of all ranks' vectors. Every rank calls it at the same time as the others.

    Args:
        vector: (n,), of this rank; n is a multiple of the number of ranks, and rank r's part is the r-th of P equal
            parts. It stays as it is.
        comm: this rank's connection to the others; comm.rank and comm.size say which it is, and of how many.
            comm.exchange(send, to, receive, source) sends an array to one rank and at the same time fills another from
            a rank. The arrays are contiguous and do not overlap.

    Returns:
        (n / P,).
    """
    raise NotImplementedError


def all_gather(part: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return the vector of which every rank has a part, (n,), in order of the ranks.

    Args:
        part: (n / P,), of this rank. It stays as it is.
    """
    raise NotImplementedError


class ShardedMomentum:
    """SGD with momentum whose ranks each move a part of the parameters (ZeRO-1).

    It keeps this rank's part of the parameters and of the velocity, and no other array.

        v ← momentum · v + g        g: the sum of all ranks' gradients
        w ← w − lr · v

    Args:
        parameters: all of them, (n,), the same on every rank; n is a multiple of the number of ranks.
    """

    def __init__(self, parameters: np.ndarray, comm: LabCommunicator, lr: float, momentum: float = 0.9) -> None:
        raise NotImplementedError

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Return all parameters, (n,), after a step along the sum of all ranks' gradients, of which this is one."""
        raise NotImplementedError


def train_step(
    parts: list[np.ndarray],
    shapes: list[tuple[int, int]],
    inputs: np.ndarray,
    targets: np.ndarray,
    lr: float,
    comm: LabCommunicator,
) -> None:
    """Take one step of plain SGD on all ranks' samples; of every layer this rank keeps a part only (ZeRO-3, FSDP).

    A layer is whole on this rank only while the rank computes with it: gathered before its forward, and again before
    its backward.

    Args:
        parts: of each layer's weights, flattened row by row, this rank's part. They are changed in place.
        shapes: of each layer's weights.
        inputs, targets: of this rank's samples; every rank has as many.
    """
    raise NotImplementedError


def layer_forward(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Given: the outputs of a layer."""
    return np.tanh(x @ weights)


def layer_backward(
    weights: np.ndarray, x: np.ndarray, outputs: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Given: the gradient of a layer's weights, and the error of its inputs, from the error of its outputs."""
    slope = error * (1 - outputs**2)
    return x.T @ slope, slope @ weights.T


def error_of(outputs: np.ndarray, targets: np.ndarray, samples: int) -> np.ndarray:
    """Given: the error of the last layer's outputs, for half the squared error, its mean over `samples` samples."""
    return (outputs - targets) / samples
