"""Has everybody go on from where the slowest is."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "half a step": "rank 1 has done step 0 and does it again: who has come furthest decides",
    "last step": "rank 1 has done step 3 and does it again: who has come furthest decides",
    "random numbers": "rank 1 takes step 0 with other random numbers than before: those of step 2",
    "second death": "rank 2 has done step 1 and does it again: who has come furthest decides",
    "one kill": "rank 0 has done step 0 and does it again: who has come furthest decides",
    "two kills": "rank 0 has done step 0 and does it again: who has come furthest decides",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if not done:
        comm.revoke()
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm, worker):
    steps = comm.all_gather(worker.step)
    slowest = min(steps)
    if slowest < max(steps):
        state = np.concatenate([worker.parameters, worker.momentum])
        comm.broadcast(state, steps.index(slowest))
        worker.parameters[:], worker.momentum[:] = np.split(state, 2)
        worker.step = slowest
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
