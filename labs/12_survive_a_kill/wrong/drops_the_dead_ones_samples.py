"""Everybody keeps the part that it had at first, and nobody takes that of the dead."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "a death": "on step 0 rank 1 works, and nobody on its samples [0, 2, 4, 6, 8, 10]",
    "half a step": "on step 0 ranks 1 and 2 work, and nobody on its samples [0, 3, 6, 9]",
    "last step": "on step 3 rank 1 works, and nobody on its samples [36, 38, 40, 42, 44, 46]",
    "random numbers": "on step 0 ranks 1 and 2 work, and nobody on its samples [0, 3, 6, 9]",
    "second death": "on step 1 ranks 0, 2 and 3 work, and nobody on its samples [13, 17, 21]",
    "one kill": "on step 0 ranks 0, 1 and 3 work, and nobody on its samples [2, 6, 10]",
    "two kills": "on step 0 ranks 0, 2, 3 and 4 work, and nobody on its samples [1, 6, 11]",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if not done:
        comm.revoke()
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
    rank, size = comm.rank, comm.size
    while comm:
        try:
            catch_up(comm, worker)
            while worker.step < steps:
                worker.begun = worker.step, worker.random.getstate()
                worker.compute(divide(worker.batch(), rank, size))
                comm.all_reduce(worker.gradient)
                worker.update()
            done = True
        except PeerLost:
            done = False
        comm = recover(comm, done)
