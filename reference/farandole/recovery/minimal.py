"""A whole training that survives the death of ranks, from top to bottom: where to start reading about recovery.

Softmax regression on the digits, data-parallel. Each step:

    share       rank r of P computes the gradient of its P-th of the batch
    all-gather  every rank receives the P gradients, and adds them up in order
    update      every rank applies the same sum: the parameters stay bitwise equal

`--kill 2 --step 30` ends rank 2 by a real SIGKILL as its step 30 begins. MPI raises an error in the calls of the
other ranks, and they continue in four moves:

    revoke      interrupt the ranks that still wait in a call of this communicator
    agree       are all ranks done? If so, no rank is needed any more
    shrink      form a communicator of the ranks that live: the new view
    go back     to the last step that all of them have taken, and share the batch among those left

Two generations of parameters suffice. No rank can take step t + 1 before all have sent their gradients for it, so
when a death is detected two ranks differ by one step at most.

Run it by Open MPI 5, whose ranks outlive each other if asked (ULFM, User-Level Failure Mitigation):

    mpirun --with-ft ulfm --oversubscribe -n 4 python -m farandole.recovery.minimal --kill 2 --step 30

Without `--with-ft ulfm` mpirun ends all ranks with the first one that dies, so this program refuses to start. With it,
mpirun's exit status may be 0 though a rank has died. The training is complete where a rank writes "done". Ranks of
several `--kill` die in the same step. As root, mpirun wants `--allow-run-as-root` as well.

`membership` does the same with spares, an election and new processes; `backup` adds what a rank alone knows.
Cost: P gradients received per step; after a death an agreement, a shrink, and 16 bytes from each rank.

Source: Bland et al., "Post-failure recovery of MPI communication capability", 2013.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.data import datasets
from farandole.runtime.rank import outlive_each_other

BATCH, LEARNING_RATE, SEED = 100, 0.5, 1
TIMEOUT_S = 300  # for the whole program, so that nothing hangs for ever
SHUTDOWN_S = 5  # MPI's shutdown may wait for a dead rank in vain
LOST = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)

Array = NDArray[np.float64]
View = tuple[int, ...]  # the ranks that take part, by their numbers at the start


def data() -> tuple[Array, Array]:
    """Return the digits' pixels and a one for the bias, (1797, 65), and their classes one-hot, (1797, 10)."""
    digits = datasets.load("digits")
    pixels = digits.inputs.reshape(len(digits), -1)
    return np.hstack([pixels, np.ones((len(digits), 1))]), np.eye(10)[digits.targets]


def batch(step: int, samples: int) -> NDArray[np.int64]:
    """Return the indices of the step's batch: the same on all ranks, as they follow from the step alone."""
    return np.random.default_rng((SEED, step)).choice(samples, BATCH, replace=False)


def gradient(parameters: Array, inputs: Array, targets: Array) -> Array:
    """Return this share's part of the batch's mean gradient of the cross-entropy, (65, 10)."""
    scores = inputs @ parameters
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors = odds / odds.sum(axis=1, keepdims=True) - targets
    mean: Array = inputs.T @ errors / BATCH
    return mean


def train(comm: MPI.Intracomm, steps: int, dies_at: int | None) -> Iterator[tuple[int, View, Array]]:
    """Train to the end, whichever other ranks die; yield each view's first step, its ranks, and the parameters then.

    Args:
        dies_at: the step at which this rank kills itself; None: never.

    Raises:
        MPI.Exception: an error that is not the loss of a rank.
    """
    me = comm.rank
    inputs, targets = data()
    taken = {0: np.zeros((inputs.shape[1], targets.shape[1]))}  # steps taken → parameters: the last two
    while True:
        try:
            told = np.empty((comm.size, 2), dtype=np.int64)
            comm.Allgather(np.array([me, max(taken)]), told)
            first = int(told[:, 1].min())  # the last step that all have taken
            taken = {first: taken[first]}
            yield first, tuple(told[:, 0].tolist()), taken[first]
            for step in range(first, steps):
                if step == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                share = np.array_split(batch(step, len(inputs)), comm.size)[comm.rank]
                gradients = np.empty((comm.size, *taken[step].shape))
                comm.Allgather(gradient(taken[step], inputs[share], targets[share]), gradients)
                taken[step + 1] = taken[step] - LEARNING_RATE * gradients.sum(axis=0)
                taken.pop(step - 1, None)
            done = True
        except MPI.Exception as error:
            if error.Get_error_class() not in LOST:
                raise
            comm.Revoke()
            done = False
        if agree(comm, done):
            yield steps, (), taken[steps]
            return
        comm.Revoke()
        comm = MPI.Intracomm(comm.Shrink())


def agree(comm: MPI.Intracomm, done: bool) -> bool:
    """Return whether all ranks are done, the same on all that live; not if one has died unnoticed. Collective.

    A revocation does not interrupt an agreement. So both take part: a rank that is done, and one that was interrupted.
    """
    try:
        return bool(comm.Agree(int(done)))
    except MPI.Exception:
        return False


class Parser(argparse.ArgumentParser):
    """Refuses bad input in one line, on rank 0."""

    def error(self, message: str) -> NoReturn:
        if MPI.COMM_WORLD.rank == 0:
            print(f"farandole: {message}", file=sys.stderr)
        sys.exit(2)


def main(arguments: Sequence[str]) -> None:
    parser = Parser(prog="farandole.recovery.minimal", description="A training that survives the death of ranks.")
    parser.add_argument("--kill", type=int, action="append", default=[], metavar="RANK", help="dies by SIGKILL")
    parser.add_argument("--step", type=int, default=30, help="at which it dies")
    parser.add_argument("--steps", type=int, default=60, help="of the training")
    options = parser.parse_args(arguments)
    me, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    if not all(0 <= rank < size for rank in options.kill) or len(set(options.kill)) == size:
        parser.error(f"--kill takes ranks from 0 to {size - 1}, and one rank at least has to live")
    if size > 1 and not outlive_each_other():
        parser.error("these ranks do not outlive each other: start them by Open MPI 5 with `mpirun --with-ft ulfm`")
    signal.alarm(TIMEOUT_S)
    dies_at = options.step if me in options.kill else None
    for step, view, parameters in train(MPI.COMM_WORLD.Dup(), options.steps, dies_at):
        digest = hashlib.sha256(parameters.tobytes()).hexdigest()[:16]
        ranks = f"continues with ranks {' '.join(map(str, view))}" if view else "done"
        os.write(1, f"rank {me} step {step} {ranks}, parameters {digest}\n".encode())  # a line at a time, unmixed
    signal.alarm(SHUTDOWN_S)


if __name__ == "__main__":
    main(sys.argv[1:])
