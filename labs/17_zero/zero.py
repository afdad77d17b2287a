"""Lab 17: training in which every rank keeps only a part of the parameters and of the optimizer's state.

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
        vector: this rank's vector, (n,); it is not changed. n is a multiple of P, the number of ranks, and rank r's
            part is the r-th of P equal parts.
        comm: this rank's communicator: comm.rank is its number, comm.size the number of ranks.
            comm.exchange(send, to, receive, source) sends one array to a rank and at the same time receives another
            from a rank. The arrays are contiguous and do not overlap.

    Returns:
        (n / P,).
    """
    raise NotImplementedError


def all_gather(part: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return the whole vector, (n,), of which every rank has a part, in rank order.

    Args:
        part: this rank's part, (n / P,). It is not changed.
    """
    raise NotImplementedError


class ShardedMomentum:
    """SGD with momentum in which each rank updates a part of the parameters (ZeRO-1).

    It stores this rank's part of the parameters and of the velocity, and no other array.

        v ← momentum · v + g        g: the sum of all ranks' gradients
        w ← w − lr · v

    Args:
        parameters: all parameters, (n,), the same on every rank; n is a multiple of the number of ranks.
    """

    def __init__(self, parameters: np.ndarray, comm: LabCommunicator, lr: float, momentum: float = 0.9) -> None:
        raise NotImplementedError

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Take a step with the sum of all ranks' gradients, of which this is one; return all parameters, (n,)."""
        raise NotImplementedError


def train_step(
    parts: list[np.ndarray],
    shapes: list[tuple[int, int]],
    inputs: np.ndarray,
    targets: np.ndarray,
    lr: float,
    comm: LabCommunicator,
) -> None:
    """Take one step of plain SGD on all ranks' samples; each rank keeps only a part of every layer (ZeRO-3, FSDP).

    A rank holds a whole layer only while it computes with it: it gathers the layer before its forward pass, and again
    before its backward pass.

    Args:
        parts: this rank's part of each layer's weights, flattened row by row. They are updated in place.
        shapes: the shape of each layer's weights.
        inputs, targets: this rank's samples; every rank has the same number.
    """
    raise NotImplementedError


def layer_forward(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the outputs of a layer. This function is given."""
    return np.tanh(x @ weights)


def layer_backward(
    weights: np.ndarray, x: np.ndarray, outputs: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient of a layer's weights and the error of its inputs, from the error of its outputs. Given."""
    slope = error * (1 - outputs**2)
    return x.T @ slope, slope @ weights.T


def error_of(outputs: np.ndarray, targets: np.ndarray, samples: int) -> np.ndarray:
    """Return the last layer's error, for half the squared error averaged over `samples` samples. Given."""
    return (outputs - targets) / samples
