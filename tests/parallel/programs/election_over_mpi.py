"""Elections among the first ranks of a launch, in groups of several sizes, with each rank late in turn."""

import json
import time
from collections import Counter

from mpi4py import MPI

from farandole.recovery.election.over_mpi import elect

SIZES = (1, 2, 3, 4, 7)
TIMES = 8  # one election after another
LATE_S = 0.003  # enough for the others to have a leader already
VERY_LATE_S = 1.3

world = MPI.COMM_WORLD
elected: Counter[str] = Counter()


def check(group: MPI.Intracomm, members: list[int], late: int, late_s: float, kind: str) -> None:
    """Hold an election in a group in which one rank is late: all follow the highest rank."""
    group.Barrier()
    if group.rank == late:
        time.sleep(late_s)
    leaders = group.allgather(elect(MPI.Intracomm(group.Dup()), members))
    assert leaders == [max(members)] * len(members), (kind, members, leaders)
    elected[kind] += 1


for size in SIZES:
    group = world.Split(0 if world.rank < size else MPI.UNDEFINED, world.rank)
    if group != MPI.COMM_NULL:
        numbers = [3 * place + 2 for place in range(size)]
        for turn in range(TIMES):
            # A spare with a slot is in the middle with a high number.
            members = numbers[turn % size :] + numbers[: turn % size]
            check(group, members, late=0, late_s=0.0, kind="all at once")
            check(group, members, late=turn % size, late_s=LATE_S, kind="one late")
        # So late that a rank with a time-out would declare it dead.
        check(group, numbers, late=size - 1, late_s=VERY_LATE_S, kind="the highest very late")
    world.Barrier()

if world.rank == 0:
    print(json.dumps(elected))
