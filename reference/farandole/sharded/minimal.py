"""A whole training with divided parameters (ZeRO-3, FSDP), from top to bottom: where to start reading about sharding.

A perceptron learns the digits. Of each layer every rank keeps a P-th of the weights, and of the two numbers that Adam
remembers for each. A layer is whole on a rank only while the rank computes with it:

    forward     for each layer: gather its weights, compute, forget them
    backward    for each layer, from the last: gather its weights again, compute, add up all ranks' gradients so that
                each rank gets the sum for its part (reduce-scatter), forget both
    update      each rank moves its parts

So a rank holds a P-th of everything, and one layer. For this the weights travel once more than in data-parallel
training: gathered twice and reduced once, where an all-reduce is a reduction and a gather.

    mpirun -n 4 python -m farandole.sharded.minimal --steps 60

It compares with the training on one rank, and prints how far the parts are from it, and what a rank has held at most.
Blocking messages and manual gradients; `training` does the same for any model of torch.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.data import datasets

Array = NDArray[np.float64]

WIDTHS = [65, 64, 64, 64, 10]  # pixels and a one for the bias, hidden layers, classes
BATCH, LEARNING_RATE, SEED = 60, 0.003, 1
held: list[int] = []  # bytes of each layer that this rank has gathered


class Layer:
    """A matrix of weights, of which this rank keeps the rows of its part, padded to equal parts."""

    def __init__(self, comm: MPI.Intracomm, weights: Array) -> None:
        self.comm, self.shape = comm, weights.shape
        self.part = self.padded(weights)[comm.rank].copy()
        self.moments = np.zeros((2, *self.part.shape))
        self.steps = 0

    def padded(self, matrix: Array) -> Array:
        """Return the numbers of `matrix` as (ranks, numbers of a part), with zeros at the end."""
        each = -(-matrix.size // self.comm.size)
        return np.append(matrix.ravel(), np.zeros(each * self.comm.size - matrix.size)).reshape(self.comm.size, each)

    def gathered(self) -> Array:
        """Return the whole matrix. Collective."""
        parts = np.empty((self.comm.size, len(self.part)))
        self.comm.Allgather(self.part, parts)
        held.append(parts.nbytes)
        return parts.ravel()[: np.prod(self.shape)].reshape(self.shape)

    def move(self, gradient: Array) -> None:
        """Add up the ranks' gradients of this rank's part, and move it as Adam does. Collective."""
        own = np.empty_like(self.part)
        self.comm.Reduce_scatter_block(self.padded(gradient), own)
        self.steps += 1
        self.moments[0] += 0.1 * (own - self.moments[0])
        self.moments[1] += 0.001 * (own**2 - self.moments[1])
        mean, square = self.moments[0] / (1 - 0.9**self.steps), self.moments[1] / (1 - 0.999**self.steps)
        self.part -= LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)


def step(layers: list[Layer], inputs: Array, targets: Array) -> float:
    """Take one step on this rank's part of the batch; return its part of the mean loss."""
    outputs = [inputs]
    for layer in layers:
        x = outputs[-1] @ layer.gathered()
        outputs.append(np.tanh(x) if layer is not layers[-1] else x)
    odds = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log((odds * targets).sum(axis=1)).sum() / BATCH
    error = (odds - targets) / BATCH
    for layer, x in zip(reversed(layers), outputs[-2::-1], strict=True):
        before = (error @ layer.gathered().T) * (1 - x**2)
        layer.move(x.T @ error)  # the sum over all ranks' samples, since each has divided by the whole batch
        error = before
    return float(loss)


def train(comm: MPI.Intracomm, steps: int) -> tuple[list[Layer], float]:
    """Train on the ranks of `comm`; return the layers and the mean loss of the last step."""
    noise, digits = np.random.default_rng(SEED), datasets.load("digits")
    inputs = np.hstack([digits.inputs.reshape(len(digits), -1), np.ones((len(digits), 1))])
    layers = [Layer(comm, noise.standard_normal(shape) / np.sqrt(shape[0])) for shape in pairwise(WIDTHS)]
    total = np.zeros(1)
    for _ in range(steps):
        rows = np.array_split(noise.choice(len(inputs), BATCH, replace=False), comm.size)[comm.rank]
        total[0] = step(layers, inputs[rows], np.eye(10)[digits.targets[rows]])
    comm.Allreduce(MPI.IN_PLACE, total)
    return layers, float(total[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="farandole.sharded.minimal", description="Training with divided parameters.")
    parser.add_argument("--steps", type=int, default=60, help="of the training, at least 1")
    steps = parser.parse_args().steps
    if steps < 1:
        parser.error(f"--steps {steps}: give at least 1")
    comm = MPI.COMM_WORLD
    layers, loss = train(comm, steps)
    most, parts = max(held), sum(4 * layer.part.nbytes for layer in layers)  # weights, gradient, two moments
    alone, expected = train(MPI.COMM_SELF, steps)
    apart = max(
        np.abs(layer.part - layer.padded(whole.part.reshape(whole.shape))[comm.rank]).max()
        for layer, whole in zip(layers, alone, strict=True)
    )
    print(
        f"rank {comm.rank} of {comm.size}: loss {loss:.4f}, alone {expected:.4f}; parts differ by {apart:.1e}; "
        f"holds {parts:,} bytes, and a layer of {most:,}",
        flush=True,
    )


if __name__ == "__main__":
    main()
