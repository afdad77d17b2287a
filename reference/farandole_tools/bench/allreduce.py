"""``farandole bench allreduce``: every all-reduce of ours, beside MPI's, Horovod's and Gloo's.

A round is that of `allreduce_rounds.py`, on vectors from 4 KiB to 64 MiB. Ours, MPI's and the memory are timed in
turn in one launch. Horovod and Gloo, whose threads would take processor time from the others, have their own launches;
the launches alternate in several sweeps. With ``--large`` the vectors have 256 MiB and 1 GiB, and each system has a
launch of its own, since all of them together would need too much memory. Peers:

- MPI_Allreduce, by mpi4py;
- Horovod, ``allreduce_`` over MPI; where it is not installed there is an error instead of its median;
- Gloo, by torch.distributed;
- a copy of the vector in every rank at the same time: no all-reduce, but how fast the memory is;
- with ``--peers all`` Open MPI's other algorithms, and MPICH and Intel MPI with theirs (`mpi_peers`).

An all-reduce in place must at least read and write every rank's vector once, 2·n·P bytes. What part of its time the
memory would take for these, at the bandwidth of P additions at once, is a row's `memory_fraction`.

A row says besides what all-reduces are compared by, the bus bandwidth, and for those that are schedules what the
α-β-γ model says: γ is measured by adding, α and β are fitted to the times of all schedules together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from farandole.collectives.costs import Link, Machine, bus_factor, predicted_s
from farandole.collectives.fitting import MODELLED, Measurement, fastest, fitted
from farandole.collectives.schedules import SCHEDULES
from farandole.report.table import binary
from farandole_tools.bench import mpi_peers
from farandole_tools.bench.allreduce_names import ADD, COPY, OURS
from farandole_tools.bench.interleaved_timing import Medians, medians, row, why_not
from farandole_tools.bench.mpi_peers import Setting
from farandole_tools.bench.versions import AS_INSTALLED, HOROVOD

ROUNDS_PROGRAM = "farandole_tools.bench.allreduce_rounds"
SIZES = {4 << 10: 30, 64 << 10: 30, 256 << 10: 20, 1 << 20: 20, 16 << 20: 8, 64 << 20: 5}  # bytes → rounds of a sweep
LARGE = {256 << 20: 3, 1 << 30: 2}
SWEEPS = 3
APART = ("Horovod", "Gloo")
COPIES = "a copy by each"
PEERS = {"mpi": "MPI_Allreduce", "Horovod": "Horovod", "Gloo": "Gloo", COPY: COPIES}
TUNING = {
    "MPI": AS_INSTALLED,
    "Horovod": HOROVOD,
    "Gloo": "as installed, over TCP",
    COPIES: "numpy.copyto in every rank at the same time",
}
ADD_TOUCHES = 3  # vectors that an addition in place reads and writes
MODEL_RANKS = (2, 3, 4, 7, 8, 16, 64)
MODEL_SIZES = (1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)


def rows(ranks: int, all_peers: bool = False, large: bool = False) -> list[dict[str, Any]]:
    """Return one row for each of our algorithms and each length of vector.

    Args:
        all_peers: measure MPI in all `mpi_peers.settings`, too.
        large: vectors of 256 MiB and 1 GiB.

    Raises:
        LaunchError: one of the systems failed or gave wrong sums.
        UsageError: another MPI could not be installed.
    """
    missing = {name: error for name in APART if (error := why_not(name))}
    together, apart = [*OURS, "mpi", COPY, ADD], [[name] for name in APART if name not in missing]
    launches = [*([name] for name in together), *apart] if large else [together, *apart]
    settings = mpi_peers.settings() if all_peers else []
    as_set = {str(each): ("mpi", each.environment) for each in settings}
    sizes, sweeps = (LARGE, 1) if large else (SIZES, SWEEPS)
    return composed(medians(ROUNDS_PROGRAM, launches, sizes, ranks, sweeps, as_set), missing, ranks, settings)


def composed(
    found: Medians, missing: dict[str, str], ranks: int, settings: Sequence[Setting] = ()
) -> list[dict[str, Any]]:
    """Return the rows, from the medians by size and system, and why some peers have none."""
    machine = fit(found, ranks)
    rows = []
    for size, its in found.items():
        for name in OURS:
            its_row = row(name, size, ranks, its, PEERS, missing)
            its_row["peers"] |= {peer: best(peer, settings, its, its[name]) for peer in peers_of(settings)}
            its_row["bus_bytes_per_s"] = bus_factor(ranks) * size / its[name]
            its_row["memory_fraction"] = its[ADD] * 2 / ADD_TOUCHES / its[name]
            if name in MODELLED:
                schedule, _ = SCHEDULES[name]
                its_row["model"] = {
                    "alpha_s": machine.link.alpha,
                    "beta_s_per_byte": machine.link.beta,
                    "gamma_s_per_byte": machine.gamma,
                    "predicted_s": predicted_s(schedule, ranks, size, machine),
                }
            rows.append(its_row)
    return rows


def peers_of(settings: Sequence[Setting]) -> list[str]:
    """Return each MPI that they are of, once."""
    return [*dict.fromkeys(each.peer for each in settings)]


def best(peer: str, settings: Sequence[Setting], seconds: dict[str, float], own_s: float) -> dict[str, Any]:
    """Return a row's entry for an MPI in the fastest of its settings, as which Open MPI has what is installed, too."""
    found = {each.tuning: seconds[str(each)] for each in settings if each.peer == peer and str(each) in seconds}
    if peer == mpi_peers.TUNED:
        found[AS_INSTALLED] = seconds["mpi"]
    [version] = {each.version for each in settings if each.peer == peer}
    if not found:
        return {"error": "no launch of it succeeded", "version": version, "tuning": "each of its settings"}
    tuning = min(found, key=lambda name: found[name])
    return {"median_s": found[tuning], "ratio": found[tuning] / own_s, "version": version, "tuning": tuning}


def fit(found: Medians, ranks: int) -> Machine:
    """α and β that suit the schedules' times best; γ from the longest addition."""
    longest = max(found)
    measured = [
        Measurement(SCHEDULES[name][0], ranks, size, its[name]) for size, its in found.items() for name in MODELLED
    ]
    return fitted(measured, gamma=found[longest][ADD] / longest)


def notes(rows: list[dict[str, Any]]) -> list[str | Table]:
    """Return the fastest of each size, the model's three figures, and which schedule it takes to be best where."""
    sizes = sorted({row["size"] for row in rows})
    best = {size: min((row for row in rows if row["size"] == size), key=lambda row: row["median_s"]) for size in sizes}
    said = "; ".join(f"{binary(size)}: {row['name']}" for size, row in best.items())
    tuned = [
        f"the fastest of {peer}: "
        + "; ".join(f"{binary(size)}: {row['peers'][peer]['tuning']}" for size, row in best.items())
        for peer, its in next(iter(best.values()))["peers"].items()
        if peer not in PEERS.values() and "median_s" in its
    ]
    if sizes[0] in LARGE:  # long vectors alone say nothing about α
        return [f"the fastest of ours: {said}", *tuned]
    model = next(row["model"] for row in rows if "model" in row)
    alpha, beta, gamma = (model[name] for name in ("alpha_s", "beta_s_per_byte", "gamma_s_per_byte"))
    figures = f"α = {alpha * 1e6:.3g} µs, β = {beta * 1e9:.3g} ns a byte, γ = {gamma * 1e9:.3g} ns a byte"
    table = Table("ranks", *map(binary, MODEL_SIZES), title="the schedule that is fastest by the model")
    for ranks in MODEL_RANKS:
        machine = Machine(Link(alpha, beta), gamma)
        table.add_row(str(ranks), *(fastest(machine, ranks, size) for size in MODEL_SIZES))
    return [f"the fastest of ours: {said}", *tuned, f"the model: {figures}", table]
