"""The all-reduces that a scenario can choose from, under the names of its ``--collective``.

Each sums a vector over all ranks, in place; each of ours leaves the same bits on every rank. The names are those of
`schedules.COLLECTIVES`, and beside them MPI's own, and `auto`, which is one of ours for each length (`automatic`).
"""

from __future__ import annotations

from functools import partial
from pkgutil import resolve_name

from farandole.collectives.automatic import automatic
from farandole.collectives.executor import AllReduce, run
from farandole.collectives.schedules import ALL_REDUCE_NAMES, COLLECTIVES, Collective
from farandole.runtime.communicator import Communicator


def _runner(row: Collective) -> AllReduce:
    if row.schedule:
        return partial(run, row.schedule)
    runner: AllReduce = resolve_name(row.runs)
    return runner


ALL_REDUCES: dict[str, AllReduce] = {name: _runner(COLLECTIVES[name]) for name in ALL_REDUCE_NAMES}
ALL_REDUCES["mpi"] = Communicator.mpi_all_reduce


def all_reduce_of(name: str, comm: Communicator) -> AllReduce:
    """Return the all-reduce of this name for these ranks; `auto` may measure the network first. Collective."""
    return automatic(comm) if name == "auto" else ALL_REDUCES[name]
