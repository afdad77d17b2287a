"""What is recovered from backups whose originals have changed, and from exchanges that one rank does not join."""

import json
from collections.abc import Sequence

import numpy as np
import torch
from mpi4py import MPI

from farandole.recovery.buddies import Buddies
from farandole.recovery.state import TrainingState
from farandole.runtime.communicator import Communicator

LENGTH = 10  # of what all share: not divisible by all numbers of ranks
EVERY = 1


class Training:
    """A state that each step changes in place, with other numbers and another length on each rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.shared = torch.zeros(2, LENGTH // 2)
        self.own = torch.zeros(rank + 1)
        self.count = torch.zeros((), dtype=torch.int64)

    def at(self, step: int) -> TrainingState:
        self.shared.copy_(torch.arange(float(LENGTH)).view_as(self.shared) + 100 * step)
        self.own.fill_(1000 * self.rank + step)
        self.count.fill_(step)
        return TrainingState(step, {"shared": self.shared}, {"own": self.own, "count": self.count}, {"lr": step / 8})


def check(buddies: Buddies, comm: Communicator, step: int) -> None:
    """Check that all ranks find the backup of `step`, and that it equals the training at that step."""
    memory = {"shared": torch.empty(2, LENGTH // 2)}
    found = buddies.recover(comm, memory)
    assert found is not None
    assert (found.step, found.ranks, found.values) == (step, comm.size, {"lr": step / 8})
    for rank in range(comm.size):
        expected, its = Training(rank).at(step), found.of_rank(rank)
        for tensors, known in ((its.shared, expected.shared), (its.own, expected.own)):
            assert tensors.keys() == known.keys()
            assert all(torch.equal(tensors[name], known[name]) for name in known)


def save(buddies: Buddies, comm: Communicator, training: Training, steps: Sequence[int]) -> None:
    for step in steps:
        buddies.save(comm, training.at(step))


mpi = MPI.COMM_WORLD
training, buddies = Training(mpi.rank), Buddies(EVERY)
first = Communicator(mpi.Dup())

save(buddies, first, training, range(5))
sent = first.bytes_sent
save(buddies, first, training, [5])
assert first.bytes_sent - sent == (training.own.nbytes + training.count.nbytes if mpi.size > 1 else 0)
training.at(99)
check(buddies, first, 5)

# All ranks have begun the next one, and none has waited for it: the sent messages arrive.
buddies.begin(first, training.at(6))
mpi.Barrier()
training.at(99)
check(buddies, first, 6)

# The last rank does not join the next one: the one before counts.
last = mpi.size - 1
second = Communicator(mpi.Dup())
save(buddies, second, training, range(7, 10))
if mpi.rank != last or mpi.size == 1:
    buddies.begin(second, training.at(10))
check(buddies, Communicator(mpi.Dup()), 10 if mpi.size == 1 else 9)

# Training continues in a new group, which soon reuses the memory of the interrupted exchange.
third = Communicator(mpi.Dup())
save(buddies, third, training, range(9, 15))
check(buddies, third, 14)
assert buddies.gone == []
right = np.array([1])
mpi.Allreduce(MPI.IN_PLACE, right)
if mpi.rank == 0:
    print(json.dumps({"right": int(right[0])}))
