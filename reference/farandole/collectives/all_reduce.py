"""The all-reduces that a scenario can choose from, under the names of its ``--collective``.

Each sums a vector over all ranks, in place, and leaves the same bits on every rank.
"""

from __future__ import annotations

from functools import partial

from farandole.collectives.central import CENTRAL
from farandole.collectives.executor import AllReduce, run
from farandole.collectives.ring import RING
from farandole.runtime.communicator import Communicator

ALL_REDUCES: dict[str, AllReduce] = {
    "ring": partial(run, RING),
    "central": partial(run, CENTRAL),
    "mpi": Communicator.mpi_all_reduce,
}
