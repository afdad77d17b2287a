"""Lab 9: a linear layer on several ranks, with its matrix split by columns or by rows, forward and backward.

Complete what raises NotImplementedError, then: farandole lab check 9
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from farandole.collectives.ring import RING
from farandole.collectives.steps import chunk_slices

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def all_reduce(part: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return the sum of all ranks' parts, on every rank. Collective. This function is given; `part` is not changed.

    It is the ring of lab 2 without the mean: 2(P − 1) messages per rank, 2(P − 1)/P times the bytes of `part`.

    Args:
        part: of the same shape on all ranks.
        comm: this rank's communicator: comm.rank is its number, comm.size the number of ranks.
    """
    total = part.flatten()
    chunks = [total[chunk] for chunk in chunk_slices(len(total), comm.size)]
    for step in RING.steps(comm.rank, comm.size):
        own, arriving = chunks[step.recv], np.empty_like(chunks[step.recv])
        comm.exchange(chunks[step.send], step.to, arriving, step.source)
        own[:] = own + arriving if step.reduce else arriving
    return total.reshape(part.shape)


class ColumnLinear:
    """y = x·A + b, split by columns: each rank holds the whole x and computes some columns of y.

    Every rank makes the layer, and calls `forward` and then `backward`, at the same time as the others.

    Args:
        weight: the whole A, (inputs, outputs), the same on all ranks. The layer copies its part and does not keep A.
        bias: the whole b, (outputs,), also on every rank.
        comm: as in `all_reduce`.

    Attributes:
        weight: this rank's columns of A, (inputs, share): part number comm.rank of the comm.size parts
            that `np.array_split` makes. The training loop updates it, by ``layer.weight -= …``.
        bias: the same columns of b, (share,).
        weight_gradient, bias_gradient: of the last backward pass, shaped like `weight` and `bias`.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        raise NotImplementedError

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return this rank's columns of y, (batch, share), from the whole x, (batch, inputs)."""
        raise NotImplementedError

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        """Set the parameters' gradients; return that of the whole x, (batch, inputs), the same on all ranks.

        Args:
            gradient: of this rank's columns of y in the last forward pass, (batch, share).
        """
        raise NotImplementedError


class RowLinear:
    """y = x·A + b, split by rows: each rank holds some columns of x and the same rows of A, and all get the whole y.

    Every rank makes the layer, and calls `forward` and then `backward`, at the same time as the others.

    Args:
        weight, bias, comm: as in `ColumnLinear`.

    Attributes:
        weight: this rank's rows of A, (share, outputs): part number comm.rank of those that `np.array_split` makes.
        bias: the whole b, (outputs,), on every rank.
        weight_gradient, bias_gradient: of the last backward pass, shaped like `weight` and `bias`.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        raise NotImplementedError

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return the whole y, (batch, outputs), on every rank, from this rank's columns of x, (batch, share)."""
        raise NotImplementedError

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        """Set the parameters' gradients; return that of this rank's columns of x, (batch, share).

        Args:
            gradient: of the whole y in the last forward pass, (batch, outputs), the same on all ranks.
        """
        raise NotImplementedError
