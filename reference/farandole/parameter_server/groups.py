"""Which ranks have which roles and which worker group, by the options of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError
from farandole.parameter_server.options import RoleOptions
from farandole.parameter_server.placement import Placement
from farandole.runtime.world import World


def place(world: World, options: RoleOptions, has_readers: bool = False) -> Placement:
    """Return the placement of the options, or the usual one.

    Args:
        has_readers: the scenario serves readers.

    Raises:
        UsageError: no such placement, readers in a scenario without any, or aggregators beside replicas or a window.
    """
    tree = options.workers_per_aggregator
    if options.place and tree:
        raise UsageError("--tree chooses the aggregators itself: with --place, name them there (aggregators=…)")
    placement = options.placement(world.size)
    if placement.readers and not has_readers:
        raise UsageError(f"--place {options.place}: nothing is served here; readers are for the scenario online")
    if placement.aggregators:
        where = "--tree" if tree else "aggregators=… in --place"
        if options.replicas > 1:
            raise UsageError(f"--replicas keeps no copy of what aggregators know: leave out {where}")
        if options.transport == "window":
            raise UsageError(f"{where} keeps gradients for later, in memory of its own: use --transport messages")
    return placement


def worker_groups(workers: Sequence[int], applications: int) -> list[tuple[int, ...]]:
    """Return the workers of each application.

    Raises:
        UsageError: more applications than workers.
    """
    if applications > len(workers):
        raise UsageError(f"--applications {applications}: there are only {len(workers)} workers, each needs at least 1")
    return [tuple(workers[part]) for part in slices(equal_shares(len(workers), applications))]
