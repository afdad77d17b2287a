"""A whole stale synchronous training, from top to bottom: where to start reading about the parameter server.

Rank 0 is the server and keeps the parameters. The other ranks are workers. Each worker has its share of the digits,
and repeats three calls for iterations c = 0, 1, …:

    pull       request to start iteration c; the answer is the parameters
    compute    the gradient of softmax regression on a batch of its share
    push       send the gradient to the server, which moves the parameters by w ← w − ηg

The server keeps a vector clock: for each worker, how many iterations it has completed. Two rules follow from the
slowest entry and the bound s (`--staleness`):

    start      iteration c may start while c − min clock ≤ s
    count      a gradient of iteration c moves the parameters once every worker has completed iteration c − s

A worker at iteration c has therefore read every gradient of the iterations up to c − s − 1, perhaps some of the
iterations up to c + s − 1, and none of later ones. A fast worker waits only where it is s iterations ahead. With s = 0
all gradients of an iteration are added up in the order of the workers: mini-batch SGD, as one process would do it.

    mpirun -n 4 python -m farandole.parameter_server.minimal --staleness 2 --slow-ms 5

Rank 0 prints two histograms. The lead is how many iterations a worker was ahead of the slowest when it started one; it
is at most s. The staleness of a gradient is how many gradients of other workers moved the parameters between its pull
and its own update; with n workers it is at most 2s(n − 1). With s = 0 the same parameters result in every run.

Cost per iteration and worker: the parameters (65 × 10 float64, 5,200 bytes) each way, and a request of as many bytes.
`core.policies.ssp` counts a gradient a little earlier, when every worker has begun iteration c − s.

Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", 2013.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.data import datasets

BATCH, LEARNING_RATE, SEED = 96, 0.5, 0
TIMEOUT_S = 300  # for the whole program, so that nothing waits for ever
SERVER, PULL, PUSH = 0, 1, 2  # a rank, and the two tags of messages to it

Array = NDArray[np.float64]


def prepared(part: datasets.Dataset) -> tuple[Array, Array]:
    """Return the pixels and a one for the bias, (samples, 65), and the classes one-hot, (samples, 10)."""
    pixels = part.inputs.reshape(len(part), -1)
    return np.hstack([pixels, np.ones((len(part), 1))]), np.eye(10)[part.targets]


def batch(worker: int, clock: int, workers: int, samples: int) -> NDArray[np.int64]:
    """Return the indices of the samples that `worker` (0 to workers − 1) uses in iteration `clock`.

    Sample i belongs to worker i mod n. The batches of one iteration have BATCH samples together.
    """
    size = BATCH // workers + (worker < BATCH % workers)
    return np.random.default_rng((SEED, worker, clock)).choice(np.arange(worker, samples, workers), size, replace=False)


def gradient(parameters: Array, inputs: Array, targets: Array) -> Array:
    """Return these samples' part of the whole batch's mean gradient of the cross-entropy, (65, 10)."""
    scores = inputs @ parameters
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    part: Array = inputs.T @ (odds / odds.sum(axis=1, keepdims=True) - targets) / BATCH
    return part


def work(comm: MPI.Intracomm, steps: int, pause_s: float) -> None:
    """A worker: `steps` iterations, each `pause_s` seconds longer than it need be."""
    inputs, targets = prepared(datasets.split(datasets.load("digits"), SEED).train)
    parameters = np.zeros((inputs.shape[1], targets.shape[1]))
    for clock in range(steps):
        comm.Send(parameters, SERVER, PULL)  # the tag is the request, the values are ignored
        comm.Recv(parameters, SERVER)
        rows = batch(comm.rank - 1, clock, comm.size - 1, len(inputs))
        pushed = gradient(parameters, inputs[rows], targets[rows])
        time.sleep(pause_s)
        comm.Send(pushed, SERVER, PUSH)


def serve(comm: MPI.Intracomm, steps: int, s: int) -> tuple[Array, Counter[int], Counter[int]]:
    """The server: answer pulls and pushes until every worker has completed `steps` iterations.

    Returns:
        The final parameters, and the histograms of lead and staleness.
    """
    parameters, message, status = np.zeros((65, 10)), np.empty((65, 10)), MPI.Status()
    clocks = dict.fromkeys(range(1, comm.size), 0)  # worker → iterations completed: the vector clock
    waiting: set[int] = set()  # workers whose pull is not answered yet
    held: dict[tuple[int, int], Array] = {}  # (iteration, worker) → a gradient that does not count yet
    applied: list[int] = []  # the worker of each gradient that has moved the parameters
    read_at: dict[tuple[int, int], int] = {}  # (iteration, worker) → len(applied) when the parameters were read
    leads: Counter[int] = Counter()
    staleness: Counter[int] = Counter()
    while min(clocks.values()) < steps:
        comm.Recv(message, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.source
        if status.tag == PULL:
            waiting.add(worker)
        else:
            held[clocks[worker], worker] = message.copy()
            clocks[worker] += 1
        counting = sorted(push for push in held if push[0] < min(clocks.values()) + s)
        for push in counting:
            before = applied[read_at[push] :]
            staleness[len(before) - before.count(push[1])] += 1
        if counting:
            parameters -= LEARNING_RATE * sum(held.pop(push) for push in counting)
            applied += [worker for _, worker in counting]
        for worker in sorted(waiting):
            lead = clocks[worker] - min(clocks.values())
            if lead <= s:
                waiting.remove(worker)
                leads[lead] += 1
                read_at[clocks[worker], worker] = len(applied)
                comm.Send(parameters, worker)
    return parameters, leads, staleness


class Parser(argparse.ArgumentParser):
    """Refuses bad input in one line, on rank 0."""

    def error(self, message: str) -> NoReturn:
        if MPI.COMM_WORLD.rank == SERVER:
            print(f"farandole: {message}", file=sys.stderr)
        sys.exit(2)


def main(arguments: Sequence[str]) -> Counter[int]:
    """Train, and return the histogram of the leads, which is empty on a worker."""
    comm = MPI.COMM_WORLD
    parser = Parser(prog="farandole.parameter_server.minimal", description="Stale synchronous training.")
    parser.add_argument("--staleness", type=int, default=2, help="s: iterations a worker may be ahead of the slowest")
    parser.add_argument("--steps", type=int, default=100, help="iterations of each worker")
    parser.add_argument("--slow-ms", type=float, default=0.0, help="how much longer the last rank's iterations take")
    options = parser.parse_args(arguments)
    if options.staleness < 0 or options.steps < 1 or not 0 <= options.slow_ms <= 1000:
        parser.error("--staleness has to be at least 0, --steps at least 1, and --slow-ms from 0 to 1000")
    if not 2 <= comm.size <= BATCH + 1:
        parser.error(f"a server and 1 to {BATCH} workers are needed, and there are {comm.size} ranks: mpirun -n 4 …")
    signal.alarm(TIMEOUT_S)
    if comm.rank != SERVER:
        work(comm, options.steps, options.slow_ms / 1000 if comm.rank == comm.size - 1 else 0.0)
        return Counter()
    parameters, leads, staleness = serve(comm, options.steps, options.staleness)
    inputs, targets = prepared(datasets.split(datasets.load("digits"), SEED).test)
    accuracy = ((inputs @ parameters).argmax(axis=1) == targets.argmax(axis=1)).mean()
    print("lead (iterations: starts)      ", dict(sorted(leads.items())))
    print("staleness (updates: gradients) ", dict(sorted(staleness.items())))
    print(f"test accuracy {accuracy:.3f}, parameters {hashlib.sha256(parameters.tobytes()).hexdigest()[:16]}")
    return leads


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception:  # one rank alone cannot end the program: the others would wait for it
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
