"""Everybody goes on from where it is itself."""

from __future__ import annotations

from farandole.lab.mortal import PeerLost

FAILS = {
    "half a step": "gradients of different steps are added up: rank 1 at step 1, rank 2 at step 0",
    "last step": "deadlock: rank 0 is dead; rank 1 waits in agree; rank 2 waits in all_reduce",
    "random numbers": "gradients of different steps are added up: rank 1 at step 1, rank 2 at step 0",
    "second death": "gradients of different steps are added up: rank 2 at step 2, rank 3 at step 1",
    "one kill": "gradients of different steps are added up: rank 0 at step 1, rank 1 at step 0",
    "two kills": "gradients of different steps are added up: rank 0 at step 1, rank 2 at step 0",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if not done:
        comm.revoke()
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm, worker):
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
