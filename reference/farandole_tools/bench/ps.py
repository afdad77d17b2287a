"""``farandole bench ps``: push and pull of 40 MB of parameters, beside others' parameter servers.

A round is that of `ps_task.py`, with one server and ranks − 1 workers. The systems alternate in
several sweeps, so that a change in the machine's load affects all alike; a median is over the rounds
of all sweeps. Peers:

- Ray, by the synchronous example of its documentation;
- torch RPC, by the batch parameter server of PyTorch's;
- mpi4py's Send there and Send back, the obvious program;
- a copy of the vector by one process, and one by each rank at the same time: no parameter server,
  but how fast this machine's memory is.

A row's `memory_fraction` is the part of a round that memory needs, at the rate of the copies at once, for what must be
read and written: each gradient is read, the parameters are read and written, and unless they are used in place, each
worker's copy of them is, too.

Further rows put variants of ours beside the first: parameters that workers read where one or two
servers have written them, messages instead of a shared window, two and four servers, and a part of
the rows (sparse), whose row says rows per second too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from farandole.errors import UsageError
from farandole_tools.bench.ps_peers.launching import ROUNDS_IN_STORE, mpi_rounds, ray_rounds, why_no_ray
from farandole_tools.bench.versions import AS_INSTALLED

NAME = "push and pull"
OURS = "farandole_tools.bench.ps_rounds"
PEERS = "farandole_tools.bench.ps_peers"
ELEMENTS = 10_000_000
TOUCHED, WIDTH = 20_000, 64  # rows of a sparse push, of the 156,250 rows that the vector then is
SPARSE = f"{TOUCHED:,} rows"
IN_PLACE = "in place"
COPIES = "{} copies at once"
SWEEPS = 3
ROUNDS = 10
TUNING = {
    "Ray": f"an object store for {ROUNDS_IN_STORE} rounds, without its dashboard",
    "torch RPC": "as installed: TensorPipe's own choice of transport, 16 threads, on the loopback interface",
    "MPI": AS_INSTALLED,
    "copy": "numpy.copyto in one process",
    "copies": "numpy.copyto in every rank at the same time",
    NAME: "one server, in a shared window; each worker copies the parameters",
}
WARM_UP = 10  # rounds until Ray writes to pages of its store for the second time

# The number of rounds → the seconds of each.
Rounds = Callable[[int], list[float]]


def rows(ranks: int) -> list[dict[str, Any]]:
    """Our median beside every peer's; then our other ways beside the first.

    Raises:
        UsageError: too few ranks for a server and a worker.
        LaunchError: one of the systems failed or gave wrong values.
    """
    if ranks < 2:
        raise UsageError(f"{ranks} ranks: bench ps needs 2 or more, a server and at least one worker")
    others = variants(ranks)
    systems = {NAME: partial(farandole_rounds, ranks, ELEMENTS)} | {
        name: measure for name, (_, measure) in others.items()
    }
    its_peers = peers(ranks, ELEMENTS)
    medians = interleaved_medians(systems | its_peers)
    found = [_row(NAME, 4 * ELEMENTS, ranks, medians, list(its_peers))]
    for name, (size, _) in others.items():
        found.append(_row(name, size, ranks, medians, [NAME]))
    found[-1]["rows_per_s"] = TOUCHED * (ranks - 1) / medians[SPARSE]
    if copies := medians.get(COPIES.format(ranks)):
        for row in found:
            row["memory_fraction"] = memory_fraction(row, 2 * ranks * 4 * ELEMENTS / copies)
    return found


def memory_fraction(row: Mapping[str, Any], bytes_per_s: float) -> float:
    """Return the part of a row's time that memory needs for what a round of it must read and write."""
    workers = row["ranks"] - 1
    touches = workers + 2 + (0 if row["name"].startswith(IN_PLACE) else 2 * workers)
    return float(touches * row["size"] / bytes_per_s / row["median_s"])


def _row(name: str, size: int, ranks: int, medians: dict[str, float], beside: list[str]) -> dict[str, Any]:
    ours = medians[name]
    its = {peer: {"median_s": medians[peer], "ratio": medians[peer] / ours} for peer in beside}
    return {"name": name, "size": size, "ranks": ranks, "median_s": ours, "peers": its}


def variants(ranks: int) -> dict[str, tuple[int, Rounds]]:
    """Return ours by messages, on more servers, and with a part of the rows: name → bytes of a push, and the rounds."""
    workers = ranks - 1

    def on_servers(servers: int, *options: str) -> Rounds:
        place = f"servers=0-{servers - 1},workers={servers}-{servers + workers - 1}"
        return partial(farandole_rounds, servers + workers, ELEMENTS, options=("--place", place, *options))

    in_place = partial(farandole_rounds, ranks, ELEMENTS, options=("--in-place",))
    by_messages = partial(farandole_rounds, ranks, ELEMENTS, options=("--transport", "messages"))
    of_rows = partial(farandole_rounds, ranks, ELEMENTS, options=("--touched", str(TOUCHED), "--width", str(WIDTH)))
    return {
        IN_PLACE: (4 * ELEMENTS, in_place),
        f"{IN_PLACE}, on 2 servers": (4 * ELEMENTS, on_servers(2, "--in-place")),
        "by messages": (4 * ELEMENTS, by_messages),
        "on 2 servers": (4 * ELEMENTS, on_servers(2)),
        "on 4 servers": (4 * ELEMENTS, on_servers(4)),
        SPARSE: (4 * TOUCHED * WIDTH, of_rows),
    }


def farandole_rounds(ranks: int, elements: int, rounds: int, options: Sequence[str] = ()) -> list[float]:
    """Return the seconds of each round of our own parameter server on `ranks` ranks."""
    return mpi_rounds(OURS, ranks, elements, rounds, options)


def peers(ranks: int, elements: int) -> dict[str, Rounds]:
    """Return the other systems; where Ray cannot run, a line on standard error gives the reason."""
    found: dict[str, Rounds] = {
        "torch RPC": partial(mpi_rounds, "farandole_tools.bench.ps_peers.torch_rpc", ranks, elements),
        "MPI Send and Recv": partial(mpi_rounds, f"{PEERS}.plain_mpi", ranks, elements),
        "1 copy": partial(mpi_rounds, f"{PEERS}.copy_bandwidth", 1, elements),
        COPIES.format(ranks): partial(mpi_rounds, f"{PEERS}.copy_bandwidth", ranks, elements),
    }
    if reason := why_no_ray(ranks - 1, elements):
        print(f"bench ps: without Ray. {reason}", file=sys.stderr)
        return found
    return {"Ray": partial(ray_rounds, ranks - 1, elements)} | found


def interleaved_medians(systems: dict[str, Rounds]) -> dict[str, float]:
    """Return each system's median seconds over the rounds of all sweeps, warm-up left out."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(SWEEPS):
        for name, measure in systems.items():
            seconds[name] += measure(WARM_UP + ROUNDS)[WARM_UP:]
    return {name: median(values) for name, values in seconds.items()}
