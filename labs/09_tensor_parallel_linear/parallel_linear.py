"""Lab 9: a linear layer on several ranks, its matrix cut by columns or by rows, forward and backward.

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
    """The sum of all ranks' parts, on every rank; `part` stays as it is. Collective, and complete as it is.

    It is the ring of lab 2 without the mean: 2(P − 1) messages, 2(P − 1)/P times the bytes of `part`.

    Args:
        part: of the same shape on all ranks.
        comm: this rank's connection to the others; comm.rank and comm.size say which it is, and of how many.
    """
    total = part.flatten()
    chunks = [total[chunk] for chunk in chunk_slices(len(total), comm.size)]
    for step in RING.steps(comm.rank, comm.size):
        own, arriving = chunks[step.recv], np.empty_like(chunks[step.recv])
        comm.exchange(chunks[step.send], step.to, arriving, step.source)
        own[:] = own + arriving if step.reduce else arriving
    return total.reshape(part.shape)


class ColumnLinear:
    """y = x·A + b, of which this rank computes some columns. All ranks have the whole x.

    Every rank makes the layer, and calls `forward` and then `backward`, at the same time as the others.

    Args:
        weight: the whole A, (inputs, outputs), the same on all ranks. It is copied from and not kept.
        bias: the whole b, (outputs,), also on every rank.
        comm: what `all_reduce` takes.

    Attributes:
        weight: this rank's columns of A, (inputs, share): part number comm.rank, cut as `np.array_split`
            cuts into comm.size parts. The training loop moves it, by ``layer.weight -= …``.
        bias: the same columns of b, (share,).
        weight_gradient, bias_gradient: of the last backward pass, shaped like `weight` and `bias`.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        raise NotImplementedError

    def forward(self, x: np.ndarray) -> np.ndarray:
        """This rank's columns of y, (batch, share), from the whole x, (batch, inputs)."""
        raise NotImplementedError

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient of the whole x, (batch, inputs), the same on all ranks; sets the parameters' gradients.

        Args:
            gradient: of this rank's columns of y in the last forward pass, (batch, share).
        """
        raise NotImplementedError


class RowLinear:
    """y = x·A + b, for which this rank uses some rows of A. Each rank has its columns of x, and all get the whole y.

    Every rank makes the layer, and calls `forward` and then `backward`, at the same time as the others.

    Args:
        weight, bias, comm: as of `ColumnLinear`.

    Attributes:
        weight: this rank's rows of A, (share, outputs): part number comm.rank, cut as `np.array_split` cuts.
        bias: the whole b, (outputs,), on every rank.
        weight_gradient, bias_gradient: of the last backward pass, shaped like `weight` and `bias`.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        raise NotImplementedError

    def forward(self, x: np.ndarray) -> np.ndarray:
        """The whole y, (batch, outputs), the same on all ranks, from this rank's columns of x, (batch, share)."""
        raise NotImplementedError

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient of this rank's columns of x, (batch, share); sets the parameters' gradients.

        Args:
            gradient: of the whole y in the last forward pass, (batch, outputs), the same on all ranks.
        """
        raise NotImplementedError
