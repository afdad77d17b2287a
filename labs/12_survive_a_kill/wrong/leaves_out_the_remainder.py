"""Gives every rank equally many samples: what is left over nobody has."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "divide": "1 sample, 2 ranks: the parts are [[], []]: not each sample exactly once",
    "nobody dies": "on step 0 ranks 0, 1, 2, 3 and 4 work, and nobody on its samples [10, 11]",
    "two kills": "on step 0 ranks 0, 1, 2, 3 and 4 work, and nobody on its samples [10, 11]",
}


def divide(samples, rank, size):
    each = len(samples) // size
    return samples[rank * each : (rank + 1) * each]


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
