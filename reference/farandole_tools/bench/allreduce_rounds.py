"""All-reduces of float32 vectors, in turn: the program of the ranks.

    mpirun -n 4 python -m farandole_tools.bench.allreduce_rounds '[[SIZE, ROUNDS], ...]' SYSTEM ...

All systems take turns, round after round, so that a change in the machine's load meets all alike. In every round the
vectors are filled anew, as gradients are; that is not timed. A turn on a short vector is several calls in a row, as in
the OSU benchmarks of MPI: a single one would measure how soon the processor has that system's code in its caches again.
Rank 0 prints, for each size, every system's seconds a call as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from farandole.runtime.options import RunOptions
from farandole.runtime.timing import slowest_s
from farandole.runtime.world import World
from farandole_tools.bench.allreduce_systems import System, make


def main() -> None:
    task, names = json.loads(sys.argv[1]), sys.argv[2:]
    with World.start(RunOptions()) as world:
        found = [measure(world, names, size, rounds) for size, rounds in task]
    if world.rank == 0:
        print(json.dumps(found))


def measure(world: World, names: list[str], size: int, rounds: int) -> dict[str, list[float]]:
    """Measure each system's seconds for a vector of `size` bytes, round after round. Collective."""
    systems = {name: make(world, name, size // 4) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    calls = in_a_row(size)
    for _ in range(rounds):
        for name, system in systems.items():
            system.vector.fill(world.rank + 1)
            seconds[name].append(slowest_s(world.control, partial(repeat, system.work, calls)) / calls)
            check(system, name, world.size, calls)
    for system in systems.values():
        system.end()
    return seconds


def in_a_row(size: int) -> int:
    """Return how many calls a system does in its turn: as many as sum up 4 MiB, but at least 1 and at most 16."""
    return max(1, min(16, (4 << 20) // size))


def repeat(work: Callable[[], object], calls: int) -> None:
    for _ in range(calls):
        work()


def check(system: System, name: str, ranks: int, calls: int) -> None:
    """Assert that the vector is now the sum of all ranks' numbers, `ranks` times as much after each further call."""
    expected = np.float32(ranks * (ranks + 1) / 2 * float(ranks) ** (calls - 1))
    wrong = system.vector != expected
    if calls > 1:  # of 3 or 7 ranks' sums the last digits are rounded
        wrong = ~np.isclose(system.vector, expected, rtol=1e-5, atol=0)
    if system.sums and wrong.any():
        raise ValueError(f"{name}: {wrong.sum()} of {len(system.vector)} sums are wrong")


if __name__ == "__main__":
    main()
