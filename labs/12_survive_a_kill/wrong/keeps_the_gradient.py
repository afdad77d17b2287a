"""Takes an interrupted step again on top of the gradient that it has computed already."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "a death": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
    "half a step": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
    "last step": "rank 1 takes step 3 again with what the first attempt has left in its gradient",
    "random numbers": "rank 1 takes step 0 again with what the first attempt has left in its gradient",
    "second death": "rank 0 takes step 1 again with what the first attempt has left in its gradient",
    "one kill": "rank 0 takes step 0 again with what the first attempt has left in its gradient",
    "two kills": "rank 0 takes step 0 again with what the first attempt has left in its gradient",
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
