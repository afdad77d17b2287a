"""Leaves those waiting that have not noticed the death."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "recover": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
    "a death": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_gather",
    "half a step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
    "last step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
    "random numbers": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_gather",
    "second death": "deadlock: ranks 0 and 3 wait in all_reduce; rank 1 is dead; rank 2 waits in agree",
    "one kill": "deadlock: ranks 0 and 1 wait in all_gather; rank 2 is dead; rank 3 waits in agree",
    "two kills": "deadlock: ranks 0, 3 and 4 wait in all_gather; rank 1 is dead; rank 2 waits in agree",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm, worker):
    steps = comm.all_gather(worker.step)
    newest = max(steps)
    if min(steps) < newest:
        state = np.concatenate([worker.parameters, worker.momentum])
        comm.broadcast(state, steps.index(newest))
        worker.parameters[:], worker.momentum[:] = np.split(state, 2)
        worker.step = newest
    worker.gradient[:] = 0
    begun, random = getattr(worker, "begun", (None, None))
    if begun == worker.step:
        worker.random.setstate(random)


def train(comm, worker, steps):
    while comm:
        try:
            catch_up(comm, worker)
            while worker.step < steps:
                worker.begun = worker.step, worker.random.getstate()
                worker.compute(divide(worker.batch(), comm.rank, comm.size))
                comm.all_reduce(worker.gradient)
                worker.update()
            done = True
        except PeerLost:
            done = False
        comm = recover(comm, done)
