"""Takes an interrupted step again with the random numbers that come next."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "random numbers": "rank 1 takes step 0 with other random numbers than before: those of step 1",
    "one kill": "rank 0 takes step 0 with other random numbers than before: those of step 1",
    "two kills": "rank 0 takes step 0 with other random numbers than before: those of step 1",
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


def train(comm, worker, steps):
    while comm:
        try:
            catch_up(comm, worker)
            while worker.step < steps:
                worker.compute(divide(worker.batch(), comm.rank, comm.size))
                comm.all_reduce(worker.gradient)
                worker.update()
            done = True
        except PeerLost:
            done = False
        comm = recover(comm, done)
