"""A layer of experts from top to bottom, forward and backward: where to start reading about expert parallel.

Each of P ranks has its tokens, vectors of some width, and a part of the E experts, networks of two matrices. The
router, one more matrix, is on all ranks. Each token goes to the expert with the largest probability p, wherever it is:

    route       p = softmax(x·router), and of each expert the first C tokens; the others get the answer 0
    dispatch    all-to-all: the tokens to the ranks of their experts
    compute     each expert with the tokens of all ranks
    combine     all-to-all: the answers back, to be multiplied by p

Backward is the same the other way round. The gradient of an expert is complete where the expert is; that of the router
is added up over the ranks. To the gradient belongs that of the balancing loss, E·Σ f·P, with f the share of the tokens
that choose an expert and P its mean probability, both over the tokens of all ranks.

    mpirun -n 4 python -m farandole.model_parallel.expert.minimal --experts 6

It compares with all experts and tokens on one rank, and prints the largest difference. One choice per token, no biases;
`expert_parallel` trains a transformer with it, with several choices.

Source: Fedus, Zoph & Shazeer, "Switch transformers", 2021.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDTH, HIDDEN, BALANCE = 8, 16, 0.01


class Way(NamedTuple):
    """The routes of the tokens, for `backward`."""

    odds: Array  # the router's probabilities, (tokens, experts)
    sent: Integers  # which tokens of this rank were sent, in order of their experts
    expert: Integers  # of each token that was sent
    here: Integers  # the expert of each token that has arrived
    leaving: Integers  # number of tokens to each rank
    arriving: Integers  # … and from each
    shares: Array  # f, of each expert
    tokens: Array  # that have arrived, (tokens, width)
    answers: Array  # that have come back, (tokens, width)


def exchange(comm: MPI.Intracomm, rows: Array, leaving: Integers, arriving: Integers) -> Array:
    """Return the rows that all ranks have for this one."""
    received, width = np.empty((arriving.sum(), rows.shape[1])), rows.shape[1]
    comm.Alltoallv([np.ascontiguousarray(rows), leaving * width], [received, arriving * width])
    return received


def forward(
    comm: MPI.Intracomm, x: Array, router: Array, first: Array, second: Array, own: Integers, capacity: int
) -> tuple[Array, Way]:
    """Return the answers to this rank's tokens, and what `backward` needs.

    Args:
        x: (tokens, width).
        router: (width, experts).
        first, second: of this rank's experts, (own experts, width, hidden) and (own experts, hidden, width).
        own: the numbers of these.
        capacity: tokens of all ranks that an expert accepts.
    """
    scores = np.exp(x @ router - (x @ router).max(1, keepdims=True))
    odds = scores / scores.sum(1, keepdims=True)
    choice, experts = odds.argmax(1), router.shape[1]  # the first of equal ones
    counts = np.empty((comm.size, experts), np.int64)
    comm.Allgather(np.bincount(choice, minlength=experts), counts)
    kept = np.clip(capacity - (counts.cumsum(0) - counts), 0, counts)  # lower ranks' tokens come first

    by_expert = [np.flatnonzero(choice == expert)[: kept[comm.rank, expert]] for expert in range(experts)]
    sent = np.concatenate(by_expert)
    owned = np.array_split(np.arange(experts), comm.size)
    leaving = np.array([kept[comm.rank, its].sum() for its in owned])
    arriving = kept[:, own].sum(1)
    here = np.repeat(np.tile(own, comm.size), kept[:, own].ravel())

    tokens, computed = exchange(comm, x[sent], leaving, arriving), np.empty((len(here), x.shape[1]))
    for number, expert in enumerate(own):
        computed[here == expert] = np.maximum(tokens[here == expert] @ first[number], 0) @ second[number]
    answers, y = exchange(comm, computed, arriving, leaving), np.zeros_like(x)
    y[sent] = odds[sent, choice[sent], None] * answers
    shares = counts.sum(0) / counts.sum()
    return y, Way(odds, sent, choice[sent], here, leaving, arriving, shares, tokens, answers)


def backward(
    comm: MPI.Intracomm, x: Array, router: Array, first: Array, second: Array, own: Integers, way: Way, gradient: Array,
    count: int,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Return the gradients of `x`, of the router and of both matrices of this rank's experts.

    Args:
        gradient: of the answers, (tokens, width).
        count: tokens of all ranks.
    """
    weights = way.odds[way.sent, way.expert, None]
    arrived = exchange(comm, weights * gradient[way.sent], way.leaving, way.arriving)
    back, first_gradient, second_gradient = np.empty_like(arrived), np.zeros_like(first), np.zeros_like(second)
    for number, expert in enumerate(own):
        tokens, error = way.tokens[way.here == expert], arrived[way.here == expert]
        hidden = np.maximum(tokens @ first[number], 0)
        slope = (error @ second[number].T) * (hidden > 0)
        first_gradient[number], second_gradient[number] = tokens.T @ slope, hidden.T @ error
        back[way.here == expert] = slope @ first[number].T

    odds_gradient = np.tile(BALANCE * len(way.shares) * way.shares / count, (len(x), 1))
    odds_gradient[way.sent, way.expert] += (gradient[way.sent] * way.answers).sum(1)
    scores_gradient = way.odds * (odds_gradient - (way.odds * odds_gradient).sum(1, keepdims=True))
    x_gradient, router_gradient = scores_gradient @ router.T, x.T @ scores_gradient
    x_gradient[way.sent] += exchange(comm, back, way.arriving, way.leaving)
    comm.Allreduce(MPI.IN_PLACE, router_gradient)
    return x_gradient, router_gradient, first_gradient, second_gradient


def main() -> None:
    parser = argparse.ArgumentParser(prog="farandole.model_parallel.expert.minimal", description="A layer of experts.")
    parser.add_argument("--tokens", type=int, default=64, help="of all ranks")
    parser.add_argument("--experts", type=int, default=6, help="of all ranks")
    parser.add_argument("--capacity", type=float, default=1.0, help="of an expert, in even shares of the tokens")
    options = parser.parse_args()
    comm, count, experts = MPI.COMM_WORLD, options.tokens, options.experts
    if count < 1 or experts < 1 or options.capacity <= 0:
        parser.error("--tokens and --experts must be at least 1, and --capacity above 0")
    noise = np.random.default_rng(0)  # the same numbers on all ranks
    x, gradient = noise.standard_normal((2, count, WIDTH))
    router = noise.standard_normal((WIDTH, experts))
    first, second = (noise.standard_normal((experts, *shape)) for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)))
    capacity = int(np.ceil(options.capacity * count / experts))

    def layer(comm: MPI.Intracomm) -> tuple[list[Array], Integers, Integers, Way]:
        rows, own = (np.array_split(np.arange(each), comm.size)[comm.rank] for each in (count, experts))
        y, way = forward(comm, x[rows], router, first[own], second[own], own, capacity)
        found = backward(comm, x[rows], router, first[own], second[own], own, way, gradient[rows], count)
        return [y, *found], rows, own, way

    found, rows, own, way = layer(comm)
    alone, *_ = layer(MPI.COMM_SELF)
    expected = [alone[0][rows], alone[1][rows], alone[2], alone[3][own], alone[4][own]]
    difference = max(np.abs(a - b).max(initial=0) for a, b in zip(found, expected, strict=True))
    print(
        f"rank {comm.rank} of {comm.size}: experts {own.tolist()} computed {len(way.here)} tokens; of its own "
        f"{len(rows)} dropped {len(rows) - len(way.sent)}; difference {difference:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
