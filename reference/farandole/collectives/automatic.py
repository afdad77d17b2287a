"""``--collective auto``: for every length the schedule that is the fastest on this machine, by the α-β-γ model.

The first training on a machine with this number of ranks measures what each schedule takes for three lengths, and how
fast the ranks add. α, β and γ are fitted to these (`fitting`) and kept in a file, for every later training there. The
tuned collectives of an MPI choose by a table of measured times; here three numbers stand for all lengths.

Another machine may choose another schedule, which adds in another order: the last digits of a training may differ.
Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.collectives.costs import Link, Machine
from farandole.collectives.executor import run
from farandole.collectives.fitting import MODELLED, Measurement, fastest, fitted
from farandole.collectives.schedules import SCHEDULES
from farandole.errors import UsageError
from farandole.runtime.communicator import Buffer, Communicator, broadcast_text
from farandole.runtime.files import json_text, read_object, write
from farandole.runtime.processes import available_cores
from farandole.runtime.surroundings import cache_folder
from farandole.runtime.timing import slowest_s

SIZES = (4 << 10, 256 << 10, 4 << 20)  # bytes
REPEATS = 4
FIGURES = ("alpha_s", "beta_s_per_byte", "gamma_s_per_byte")


@dataclass
class Automatic:
    """The all-reduce that chooses.

    Attributes:
        machine: what it chooses by.
        kept: where that is kept; None: it could not be.
        chosen: bytes of a vector → the schedule that it was given.
    """

    machine: Machine
    kept: Path | None
    chosen: dict[int, str] = field(default_factory=dict)

    def __call__(self, comm: Communicator, buffer: Buffer) -> None:
        """Sum `buffer`, one contiguous vector, over all ranks, in place. Collective."""
        if buffer.nbytes not in self.chosen:
            self.chosen[buffer.nbytes] = fastest(self.machine, comm.size, buffer.nbytes)
        run(SCHEDULES[self.chosen[buffer.nbytes]][0], comm, buffer)

    def figures(self) -> dict[str, Any]:
        """Return what a record says of it."""
        return {**_as_figures(self.machine), "kept": self.kept and str(self.kept), "chosen": self.chosen}


def automatic(comm: Communicator) -> Automatic:
    """Return the all-reduce that chooses, which knows this machine from before, or measures it now. Collective.

    Raises:
        UsageError: the links are slowed down or lose messages, so that what is kept does not hold.

    Cost: nothing where the machine is known; otherwise less than a second on few ranks, once.
    """
    if "automatic" not in comm.kept:
        comm.kept["automatic"] = _automatic(comm)
    found: Automatic = comm.kept["automatic"]
    return found


def _automatic(comm: Communicator) -> Automatic:
    comm.refuse("--collective auto", "name a collective")
    file = cache_folder() / "network.json"
    name = _name(comm)
    known = _broadcast(comm, partial(_read, file, name))
    if known:
        return Automatic(_from_figures(known), file)
    machine = measured(comm)
    is_kept = _broadcast(comm, partial(_keep, file, name, machine))
    return Automatic(machine, file if is_kept else None)


def measured(comm: Communicator) -> Machine:
    """Return what α, β and γ are between these ranks, from the times of all schedules. Collective."""
    if comm.size == 1:
        return Machine(Link(0.0, 0.0), 0.0)
    uncounted = Communicator(comm.mpi, members=comm.members)
    found = []
    for nbytes in SIZES:
        vector = np.zeros(nbytes // 4, np.float32)
        for name in MODELLED:
            schedule, _ = SCHEDULES[name]
            seconds = _median_s(comm, partial(run, schedule, uncounted, vector))
            found.append(Measurement(schedule, comm.size, nbytes, seconds))
    one, other = np.zeros(SIZES[-1] // 4, np.float32), np.zeros(SIZES[-1] // 4, np.float32)
    return fitted(found, gamma=_median_s(comm, partial(np.add, one, other, out=one)) / SIZES[-1])


def _median_s(comm: Communicator, action: Callable[[], object]) -> float:
    """Return the seconds until the last rank has done it, after one time that is not counted."""
    with comm.waiting("measuring the network", -1):
        _, *seconds = (slowest_s(comm.mpi, action) for _ in range(1 + REPEATS))
    return median(seconds)


def _name(comm: Communicator) -> str:
    """Return the name of this machine with these ranks, under which its figures are kept."""
    with comm.waiting("the hosts of all ranks", -1):
        hosts = len(set(comm.mpi.allgather(MPI.Get_processor_name())))
    models = [line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    library = MPI.Get_library_version().split(",")[0].strip()
    return f"{comm.size} ranks on {hosts} × {available_cores()} cores, {(models or ['?'])[0]}, {library}"


def _lines(file: str) -> list[str]:
    with suppress(OSError):
        return Path(file).read_text(encoding="utf-8").splitlines()
    return []


def _broadcast(comm: Communicator, ask: Callable[[], Any]) -> Any:
    """Return on every rank what rank 0 has found."""
    return json.loads(broadcast_text(comm.mpi, json.dumps(ask()) if comm.rank == 0 else "", 0))


def _read(file: Path, name: str) -> dict[str, float] | None:
    """Return the figures of this name; None: there are none yet, or they are damaged and are measured again."""
    try:
        known = read_object(file, "it is measured again").get(name)
    except UsageError:
        return None
    if isinstance(known, dict) and all(isinstance(known.get(each), float) and known[each] >= 0 for each in FIGURES):
        return known
    return None


def _keep(file: Path, name: str, machine: Machine) -> bool:
    """Add the figures to the file; return whether that was possible."""
    known: dict[str, Any] = {}
    with suppress(UsageError):
        known = read_object(file, "it is written anew")
    known[name] = _as_figures(machine) | {"measured": time.strftime("%Y-%m-%d")}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json_text(known, indent=1) + "\n")
        return True
    return False


def _as_figures(machine: Machine) -> dict[str, float]:
    return dict(zip(FIGURES, (machine.link.alpha, machine.link.beta, machine.gamma), strict=True))


def _from_figures(known: dict[str, float]) -> Machine:
    alpha, beta, gamma = (known[each] for each in FIGURES)
    return Machine(Link(alpha, beta), gamma)
