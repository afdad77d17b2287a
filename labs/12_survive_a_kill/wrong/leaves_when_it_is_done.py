"""Who is done returns, though another may still need its state."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "recover": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
    "last step": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
    "random numbers": "deadlock: rank 0 is dead; rank 1 has returned; rank 2 waits in shrink",
    "second death": "deadlock: ranks 0 and 1 are dead; rank 2 has returned; rank 3 waits in shrink",
    "one kill": "deadlock: rank 0 has returned; ranks 1 and 3 wait in shrink; rank 2 is dead",
    "two kills": "deadlock: rank 0 has returned; rank 1 is dead; ranks 2, 3 and 4 wait in shrink",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if done:
        return None
    comm.revoke()
    return comm.shrink()


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
