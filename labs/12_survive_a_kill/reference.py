"""The method of farandole/recovery/membership.py and membership_protection.py in the form of this lab.

There an update is repeated until every step after the shrink has succeeded, too: a view that assigns the
slots, an election, and the groups of workers and spares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole_tools.lab.small_training import Worker
from farandole_tools.lab.ulfm_communicator import PeerLost, UlfmCommunicator


def divide(samples: Sequence[int], rank: int, size: int) -> Sequence[int]:
    return samples[rank::size]


def recover(comm: UlfmCommunicator, done: bool) -> UlfmCommunicator | None:
    if not done:
        comm.revoke()
    # Workers that are done are in here, too: none leaves as long as another may need its state.
    return None if comm.agree(done) else comm.shrink()


def catch_up(comm: UlfmCommunicator, worker: Worker) -> None:
    steps = comm.all_gather(worker.step)
    newest = max(steps)
    if min(steps) < newest:
        state = np.concatenate([worker.parameters, worker.momentum])  # a copy: this call, too, may be interrupted
        comm.broadcast(state, steps.index(newest))
        worker.parameters[:], worker.momentum[:] = np.split(state, 2)
        worker.step = newest
    worker.gradient[:] = 0
    begun, random = getattr(worker, "begun", (None, None))
    if begun == worker.step:
        worker.random.setstate(random)


def take_step(comm: UlfmCommunicator, worker: Worker) -> None:
    worker.begun = worker.step, worker.random.getstate()
    worker.compute(divide(worker.batch(), comm.rank, comm.size))
    comm.all_reduce(worker.gradient)
    worker.update()


def train(comm: UlfmCommunicator, worker: Worker, steps: int) -> None:
    left: UlfmCommunicator | None = comm
    while left:
        try:
            catch_up(left, worker)
            while worker.step < steps:
                take_step(left, worker)
            done = True
        except PeerLost:
            done = False
        left = recover(left, done)
