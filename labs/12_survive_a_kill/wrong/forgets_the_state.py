"""Who is behind takes the number of the step, but not the state."""

from __future__ import annotations

from farandole.lab.mortal import PeerLost

FAILS = {
    "half a step": "rank 2 takes step 1 with the parameters of step 0, not of step 1",
    "last step": "rank 2 has returned with the parameters of step 3, not of step 4",
    "random numbers": "rank 2 has returned with another state than the others",
    "second death": "rank 3 takes step 2 with the parameters of step 1, not of step 2",
    "one kill": "rank 1 takes step 1 with the parameters of step 0, not of step 1",
    "two kills": "rank 2 takes step 1 with the parameters of step 0, not of step 1",
}


def divide(samples, rank, size):
    return samples[rank::size]


def recover(comm, done):
    if not done:
        comm.revoke()
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm, worker):
    worker.step = max(comm.all_gather(worker.step))
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
