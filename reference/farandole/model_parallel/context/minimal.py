"""Ring attention from top to bottom, forward and backward: where to start reading about long sequences.

A sequence of T positions is divided over P ranks. Each rank has the queries, keys and values of its positions, and
wants the attention of its queries to all keys that are not after them. Keys and values go around the ring:

    P times     attend to the block that is here, and pass it on to the right

A softmax needs all scores of a row. So each rank keeps for every query the largest score m so far, the sum s of
exp(score − m) and the answer relative to m; when a larger score comes, the sum and the answer are scaled down. Backward
goes around again, and each block takes its gradient along.

    mpirun -n 4 python -m farandole.model_parallel.context.minimal --positions 64

It compares with attention on one rank, and prints the largest difference. One head, one sample, blocking messages;
scores of keys after the query are computed and thrown away. `context_parallel` leaves them out, and receives the next
block while it attends to this one.

Source: Liu, Zaharia & Abbeel, "Ring attention with blockwise transformers for near-infinite context", 2023.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Array = NDArray[np.float64]


def positions_of(rank: int, ranks: int, count: int) -> NDArray[np.int64]:
    """Return this rank's positions: an early part and a late one, so that all have equal work (zig-zag)."""
    parts = np.array_split(np.arange(count), 2 * ranks)
    return np.concatenate((parts[rank], parts[2 * ranks - 1 - rank]))


def passed_on(comm: MPI.Intracomm, block: Array, owner: int, count: int) -> Array:
    """Send a block to the right, and return the one from the left, whose positions are those of rank `owner`."""
    rank, ranks = comm.rank, comm.size
    arriving = np.empty((2, len(positions_of(owner, ranks, count)), block.shape[2]))
    comm.Sendrecv(np.ascontiguousarray(block), (rank + 1) % ranks, 0, arriving, (rank - 1) % ranks, 0)
    return arriving


def scores_of(query: Array, key: Array, own: NDArray[np.int64], theirs: NDArray[np.int64]) -> Array:
    """Return query·key/√d, (own, theirs), and −∞ where the key is after the query."""
    scores: Array = query @ key.T / np.sqrt(query.shape[1])
    scores[theirs > own[:, None]] = -np.inf
    return scores


def forward(comm: MPI.Intracomm, query: Array, block: Array, count: int) -> tuple[Array, Array]:
    """Return the answers of this rank's queries, and the logarithm of each one's sum, for `backward`.

    Args:
        query: (own positions, width).
        block: (2, own positions, width): keys and values.
        count: positions of the whole sequence.
    """
    own = positions_of(comm.rank, comm.size, count)
    largest, total = np.full((len(own), 1), -np.inf), np.zeros((len(own), 1))
    answer = np.zeros_like(query)
    for step in range(comm.size):
        owner = (comm.rank - step) % comm.size
        scores = scores_of(query, block[0], own, positions_of(owner, comm.size, count))
        larger = np.maximum(largest, scores.max(axis=1, keepdims=True))  # above −∞: the own block comes first
        weights = np.exp(scores - larger)
        scale = np.exp(largest - larger)
        total = scale * total + weights.sum(axis=1, keepdims=True)
        answer = scale * answer + weights @ block[1]
        largest = larger
        if step < comm.size - 1:
            block = passed_on(comm, block, (owner - 1) % comm.size, count)
    return answer / total, largest + np.log(total)


def backward(
    comm: MPI.Intracomm, query: Array, block: Array, answer: Array, log_total: Array, gradient: Array, count: int
) -> tuple[Array, Array]:
    """Return the gradients of this rank's queries, and of its keys and values.

    Args:
        answer, log_total: of `forward`.
        gradient: of the answers.
    """
    own, root = positions_of(comm.rank, comm.size, count), np.sqrt(query.shape[1])
    query_gradient, block_gradient = np.zeros_like(query), np.zeros_like(block)
    mean = (gradient * answer).sum(axis=1, keepdims=True)
    for step in range(comm.size):
        owner = (comm.rank - step) % comm.size
        weights = np.exp(scores_of(query, block[0], own, positions_of(owner, comm.size, count)) - log_total)
        scores_gradient = weights * (gradient @ block[1].T - mean)
        query_gradient += scores_gradient @ block[0] / root
        block_gradient[0] += scores_gradient.T @ query / root
        block_gradient[1] += weights.T @ gradient
        if step < comm.size - 1:
            block = passed_on(comm, block, (owner - 1) % comm.size, count)
        block_gradient = passed_on(comm, block_gradient, (owner - 1) % comm.size, count)  # at last it is home
    return query_gradient, block_gradient


def unsplit(query: Array, block: Array, gradient: Array) -> tuple[Array, Array, Array]:
    """Return the answers and both gradients, computed with all T × T scores."""
    everything, root = np.arange(len(query)), np.sqrt(query.shape[1])
    scores = scores_of(query, block[0], everything, everything)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    answer = weights @ block[1]
    scores_gradient = weights * (gradient @ block[1].T - (gradient * answer).sum(axis=1, keepdims=True))
    return answer, scores_gradient @ block[0] / root, np.stack((scores_gradient.T @ query / root, weights.T @ gradient))


def main() -> None:
    parser = argparse.ArgumentParser(prog="farandole.model_parallel.context.minimal", description="Ring attention.")
    parser.add_argument("--positions", type=int, default=64, help="length of the sequence, at least twice the ranks")
    parser.add_argument("--width", type=int, default=16, help="width of the head")
    options = parser.parse_args()
    comm, count = MPI.COMM_WORLD, options.positions
    if count < 2 * comm.size or options.width < 1:
        parser.error(
            f"--positions {count} for {comm.size} ranks: give at least {2 * comm.size}, and --width at least 1"
        )
    numbers = np.random.default_rng(0).standard_normal((4, count, options.width))  # the same on all ranks
    own = positions_of(comm.rank, comm.size, count)
    query, block, gradient = numbers[0, own], numbers[1:3, own], numbers[3, own]

    answer, log_total = forward(comm, query, block, count)
    query_gradient, block_gradient = backward(comm, query, block, answer, log_total, gradient, count)

    expected = unsplit(numbers[0], numbers[1:3], numbers[3])
    found = (answer, query_gradient, *block_gradient)
    difference = max(np.abs(a - b[own]).max() for a, b in zip(found, (*expected[:2], *expected[2]), strict=True))
    print(f"rank {comm.rank} of {comm.size}: {len(own)} positions, difference {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
