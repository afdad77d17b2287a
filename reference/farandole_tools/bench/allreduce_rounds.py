"""All-reduces of float32 vectors, in turn: the program of the ranks.

    mpirun -n 4 python -m farandole_tools.bench.allreduce_rounds '[[SIZE, ROUNDS], ...]' SYSTEM ...

All systems take turns, round after round, so that a change in the machine's load meets all alike. In every round the
vectors are filled anew, as gradients are; that is not timed. Rank 0 prints, for each size, every system's seconds as
JSON.
"""

from __future__ import annotations

import json
import sys

from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole_tools.bench.allreduce_systems import System, make
from farandole_tools.bench.timing import slowest_s


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
    for _ in range(rounds):
        for name, system in systems.items():
            system.vector.fill(world.rank + 1)
            seconds[name].append(slowest_s(world.control, system.work))
            check(system, name, world.size)
    for system in systems.values():
        system.end()
    return seconds


def check(system: System, name: str, ranks: int) -> None:
    """Assert that the vector is now the sum of all ranks' numbers."""
    expected = ranks * (ranks + 1) / 2
    if system.sums and not (system.vector == expected).all():
        raise ValueError(f"{name}: {(system.vector != expected).sum()} of {len(system.vector)} sums are wrong")


if __name__ == "__main__":
    main()
