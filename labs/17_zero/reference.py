"""The project's own sharded training, in this lab's form: collectives/ring.py, and unit.py and training.py in sharded/.

There a unit may be any module of torch, and autograd's hooks gather and reduce it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def reduce_scatter(vector: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    parts = np.split(vector.copy(), comm.size)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(1, comm.size):
        arriving = np.empty_like(parts[0])
        comm.exchange(parts[(comm.rank - step) % comm.size], right, arriving, left)
        parts[(comm.rank - step - 1) % comm.size] += arriving
    return parts[comm.rank].copy()


def all_gather(part: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    parts = np.empty((comm.size, len(part)))
    parts[comm.rank] = part
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        comm.exchange(parts[(comm.rank - step) % comm.size], right, parts[(comm.rank - step - 1) % comm.size], left)
    return parts.reshape(-1)


class ShardedMomentum:
    def __init__(self, parameters: np.ndarray, comm: LabCommunicator, lr: float, momentum: float = 0.9) -> None:
        self.comm, self.lr, self.momentum = comm, lr, momentum
        self.part = np.split(parameters, comm.size)[comm.rank].copy()
        self.velocity = np.zeros_like(self.part)

    def step(self, gradient: np.ndarray) -> np.ndarray:
        own = reduce_scatter(gradient, self.comm)
        self.velocity = self.momentum * self.velocity + own
        self.part = self.part - self.lr * self.velocity
        return all_gather(self.part, self.comm)


def train_step(
    parts: list[np.ndarray],
    shapes: list[tuple[int, int]],
    inputs: np.ndarray,
    targets: np.ndarray,
    lr: float,
    comm: LabCommunicator,
) -> None:
    outputs = [inputs]
    for part, shape in zip(parts, shapes, strict=True):
        outputs.append(layer_forward(all_gather(part, comm).reshape(shape), outputs[-1]))
    error = error_of(outputs[-1], targets, len(inputs) * comm.size)
    for number in reversed(range(len(parts))):
        weights = all_gather(parts[number], comm).reshape(shapes[number])
        gradient, error = layer_backward(weights, outputs[number], outputs[number + 1], error)
        parts[number] -= lr * reduce_scatter(gradient.reshape(-1), comm)


def layer_forward(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ weights)


def layer_backward(
    weights: np.ndarray, x: np.ndarray, outputs: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    slope = error * (1 - outputs**2)
    return x.T @ slope, slope @ weights.T


def error_of(outputs: np.ndarray, targets: np.ndarray, samples: int) -> np.ndarray:
    return (outputs - targets) / samples
