"""Is ready for one death: another while it catches up ends it."""

from __future__ import annotations

import numpy as np

from farandole.lab.mortal import PeerLost

FAILS = {
    "second death": "the death is not survived: PeerLost: found rank 0 dead, in all_gather",
    "two kills": "the death is not survived: PeerLost: found rank 3 dead, in all_gather",
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
    try:
        take_steps(comm, worker, steps)
        done = True
    except PeerLost:
        done = False
    left = recover(comm, done)
    if left:
        catch_up(left, worker)
        take_steps(left, worker, steps)
        recover(left, True)


def take_steps(comm, worker, steps):
    while worker.step < steps:
        worker.begun = worker.step, worker.random.getstate()
        worker.compute(divide(worker.batch(), comm.rank, comm.size))
        comm.all_reduce(worker.gradient)
        worker.update()
