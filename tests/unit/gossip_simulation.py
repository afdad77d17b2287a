"""Decentralised training of many ranks in one process: the reference for `cost.gossip`.

The steps and weights are those of `decentralised.steps` and `decentralised.mixing`; there are no messages, no time and
no waiting. It shows what graphs do to learning: how far the copies are apart, and what their mean has learned.

    for copies in train(topology("ring", 64), start, gradient, lr=0.1, steps=100):
        print(consensus_error(copies))

Cost: the memory of all copies, and P gradients a step, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.decentralised.mixing import doubly_stochastic, pushing
from farandole.decentralised.steps import Matrix, run
from farandole.decentralised.topologies import Topology

Vector = NDArray[Any]
Gradient = Callable[[Vector, int, int], Vector]  # (parameters, rank, step) → that rank's gradient


def train(
    graph: Topology,
    start: Vector,
    gradient: Gradient,
    lr: float,
    steps: int,
    every: int = 1,
    after_update: bool = False,
) -> Iterator[Matrix]:
    """Train by D-PSGD and yield all ranks' parameters after each step, one a row.

    Args:
        start: the parameters that all ranks begin with.
        every, after_update: as of `dpsgd.DPSGD`.
    """
    copies = np.tile(start, (graph.ranks, 1))
    for step in range(steps):
        moves = lr * _gradients(gradient, copies, step)
        mixes = (step + 1) % every == 0
        if after_update:
            copies = copies - moves
        if mixes:
            number = step // every
            copies = run([doubly_stochastic(graph, rank, number) for rank in range(graph.ranks)], copies)
        if not after_update:
            copies = copies - moves
        yield copies


def train_by_pushing(graph: Topology, start: Vector, gradient: Gradient, lr: float, steps: int) -> Iterator[Matrix]:
    """Train by push-sum and yield all ranks' z = x/w after each step, one a row."""
    pushed = np.hstack([np.tile(start, (graph.ranks, 1)), np.ones((graph.ranks, 1), start.dtype)])
    for step in range(steps):
        pushed[:, :-1] -= lr * _gradients(gradient, pushed[:, :-1] / pushed[:, -1:], step)
        pushed = run([pushing(graph, rank, step) for rank in range(graph.ranks)], pushed)
        yield pushed[:, :-1] / pushed[:, -1:]


def _gradients(gradient: Gradient, copies: Matrix, step: int) -> Matrix:
    return np.array([gradient(parameters, rank, step) for rank, parameters in enumerate(copies)])
