"""The project's own split, in this lab's form: farandole/model_parallel/tensor/linear.py, exchange.py.

There autograd goes back through two operators, f and g; here their other halves are written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from farandole.collectives.ring import RING
from farandole.collectives.steps import chunk_slices
from farandole.data.shares import equal_shares, slices

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def all_reduce(part: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    total = part.flatten()
    chunks = [total[chunk] for chunk in chunk_slices(len(total), comm.size)]
    for step in RING.steps(comm.rank, comm.size):
        own, arriving = chunks[step.recv], np.empty_like(chunks[step.recv])
        comm.exchange(chunks[step.send], step.to, arriving, step.source)
        own[:] = own + arriving if step.reduce else arriving
    return total.reshape(part.shape)


class ColumnLinear:
    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        own = slices(equal_shares(len(bias), comm.size))[comm.rank]
        self.weight, self.bias, self.comm = weight[:, own].copy(), bias[own].copy(), comm

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.weight + self.bias

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return all_reduce(gradient @ self.weight.T, self.comm)


class RowLinear:
    def __init__(self, weight: np.ndarray, bias: np.ndarray, comm: LabCommunicator) -> None:
        own = slices(equal_shares(len(weight), comm.size))[comm.rank]
        self.weight, self.bias, self.comm = weight[own].copy(), bias.copy(), comm

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return all_reduce(x @ self.weight, self.comm) + self.bias

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return gradient @ self.weight.T
