"""Compare `farandole simulate --network` with SimGrid: the same schedules over the same networks. Prints a table.

    apt-get install python3-simgrid
    python tools/compare_with_simgrid.py

SimGrid is the flow-level simulator of Casanova, Giersch, Legrand, Quinson & Suter, "Versatile, scalable, and accurate
simulation of distributed applications and platforms", 2014. Its model CM02 is used without its corrections for TCP. For
each schedule it simulates

    stages     each stage begins when the one before it has ended, as here; links without latency, for bandwidth alone
    ranks      each rank as a process, which begins a step when it has ended its last one; the same links
    latency    as ranks, and each link has a latency; messages with longer paths get smaller shares, as with TCP

over a platform made of our routes, so that only time is compared. A fourth figure, own, is `stages` over SimGrid's own
torus, fat tree or dragonfly, with its own routes. docs/cost.md explains the differences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from farandole.collectives.costs import Link
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import RING
from farandole.collectives.steps import Schedule
from farandole.cost.networks.dragonfly import Dragonfly
from farandole.cost.networks.fat_tree import FatTree
from farandole.cost.networks.network import Network, Placed
from farandole.cost.networks.passage import Passage, passage
from farandole.cost.networks.stages import stages
from farandole.cost.networks.torus import Torus
from farandole.cost.networks.tree_shaped import SingleSwitch, TwoLevel


class TorusOfSimGrid(Torus):
    """A torus in which a message from the middle of a row to its first host goes down, as in SimGrid 3.32 and 4.1."""

    def _goes_up(self, at: int, goal: int, side: int) -> bool:
        return super()._goes_up(at, goal, side) and not (2 * at == side and goal == 0)


RANKS, PER_NODE = 64, 8
NBYTES, BANDWIDTH, HOP_S = 40e6, 12.5e9, 5e-6  # bytes; bytes a second; the latency of each link
SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "ring": lambda: RING,
    "halving-doubling": lambda: HALVING_DOUBLING,
    "hierarchical": lambda: hierarchical(PER_NODE),
}
NETWORKS: dict[str, Network] = {
    "single switch": SingleSwitch(RANKS),
    "two-level, 8 a rack, 4:1": TwoLevel(8, 8, 4.0),
    "fat tree, 8 ports, modulo": FatTree(8, "modulo"),
    "fat tree, 8 ports, hash": FatTree(8, "hash"),
    "fat tree, 8 ports, spread": FatTree(8),
    "dragonfly, 8 groups of 8": Dragonfly(1, 8, 1, 8),
    "torus, 8 × 8": Torus((8, 8)),
    "torus, 4 × 4 × 4": Torus((4, 4, 4)),
}
TIES = {f"{name}, ties as SimGrid": TorusOfSimGrid(network.sides)
        for name, network in NETWORKS.items() if isinstance(network, Torus)}  # fmt: skip
MODES = ("stages", "own", "ranks", "latency")
CONFIGURATION = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0",
                 "network/bandwidth-factor:1", "network/latency-factor:1", "maxmin/precision:1e-9",
                 "surf/precision:1e-12")  # fmt: skip


@dataclass(frozen=True)
class Case:
    schedule: str
    network: str
    seed: int | None  # of a random placement

    @property
    def placed(self) -> Placed:
        return Placed((NETWORKS | TIES)[self.network], self.seed)

    def passage(self) -> Passage:
        return passage(stages(SCHEDULES[self.schedule](), RANKS), self.placed, RANKS)


def simulated(case: Case, mode: str, folder: str) -> float | None:
    """Return the milliseconds that SimGrid simulates; None: it has no such network."""
    simgrid = _simgrid(folder)
    engine = simgrid.Engine(["compare", "--log=root.thresh:error", *(f"--cfg={each}" for each in CONFIGURATION)])
    if mode == "own":
        if not (hosts := _own_platform(simgrid, case.placed.network)):
            return None
    else:
        hosts = _platform(simgrid, case, HOP_S if mode == "latency" else 0.0)
    places = case.placed.places(RANKS)
    if mode in ("stages", "own"):
        simgrid.Actor.create("stages", hosts[0], partial(_in_stages, simgrid, case, [hosts[at] for at in places]))
    else:
        for rank, place in enumerate(places):
            simgrid.Actor.create(str(rank), hosts[place], partial(_one_rank, simgrid, case, rank))
    engine.run()
    return 1e3 * float(engine.clock)


def _simgrid(folder: str) -> Any:
    """Import SimGrid's Python binding, last in the path, because the folder has other packages, too."""
    sys.path.append(folder)
    return import_module("simgrid")


def _in_stages(simgrid: Any, case: Case, hosts: list[Any]) -> None:
    for stage in stages(SCHEDULES[case.schedule](), RANKS):
        for _ in range(stage.times):
            sent = [simgrid.Comm.sendto_async(hosts[source], hosts[target], round(part * NBYTES))
                    for source, target, part in stage.messages]  # fmt: skip
            for each in sent:
                each.wait()


def _one_rank(simgrid: Any, case: Case, rank: int) -> None:
    schedule = SCHEDULES[case.schedule]()
    chunk = NBYTES / schedule.chunks(RANKS)
    for step in schedule.steps(rank, RANKS):
        waiting, contents = [], []
        for each in step.exchanges:
            if each.to is not None:
                box = simgrid.Mailbox.by_name(f"{rank} to {each.to}")
                waiting.append(box.put_async("", round(len(each.sent) * chunk)))
            if each.source is not None:
                arriving, content = simgrid.Mailbox.by_name(f"{each.source} to {rank}").get_async()
                waiting.append(arriving)
                contents.append(content)  # must exist until it has arrived
        for comm in waiting:
            comm.wait()


def _platform(simgrid: Any, case: Case, hop_s: float) -> list[Any]:
    """Make the hosts, and the routes between those that exchange messages."""
    zone = simgrid.NetZone.create_full_zone("zone")
    network = case.placed.network
    hosts = [zone.create_host(f"host-{each}", 1e9).seal() for each in range(network.hosts)]
    places, links = case.placed.places(RANKS), {}
    pairs = {(places[source], places[target]) for stage in stages(SCHEDULES[case.schedule](), RANKS)
             for source, target, _ in stage.messages}  # fmt: skip
    for source, target in sorted(pairs):
        route = network.route(source, target)
        for name, capacity in route:
            if name not in links:
                links[name] = zone.create_link(name.replace(" ", "-"), capacity * BANDWIDTH)
                links[name] = links[name].set_latency(hop_s).seal()
        wires = [simgrid.LinkInRoute(links[name]) for name, _ in route]
        zone.add_route(hosts[source].netpoint, hosts[target].netpoint, None, None, wires, False)
    zone.seal()
    return hosts


def _own_platform(simgrid: Any, network: Network) -> list[Any]:
    """Make SimGrid's network of the same kind; no hosts if it has none."""
    hosts: list[Any] = []

    def host(zone: Any, _: Any, number: int) -> Any:
        hosts.append(zone.create_host(f"host-{number}", 1e9).seal())
        return hosts[-1].netpoint, None

    zones, callbacks = simgrid.NetZone, simgrid.ClusterCallbacks(host, None, None)
    both = simgrid.Link.SharingPolicy.SPLITDUPLEX
    if isinstance(network, Torus):
        zone = zones.create_torus_zone("zone", None, list(network.sides), callbacks, BANDWIDTH, 0.0, both)
    elif isinstance(network, FatTree) and network.routing == "modulo":
        half = network.ports // 2
        shape = simgrid.FatTreeParams(3, [half, half, network.ports], [1, half, half], [1, 1, 1])
        zone = zones.create_fatTree_zone("zone", None, shape, callbacks, BANDWIDTH, 0.0, both)
    elif isinstance(network, Dragonfly):
        shape = simgrid.DragonflyParams((network.groups, 1), (1, 1), (network.routers, 1), network.per_router)
        zone = zones.create_dragonfly_zone("zone", None, shape, callbacks, BANDWIDTH, 0.0, both)
    else:
        return []
    zone.seal()
    return hosts


@dataclass(frozen=True)
class Compared:
    """A case in milliseconds: ours, and SimGrid's relative difference from it, by its modes."""

    ours: float
    differences: dict[str, float | None]

    def cells(self) -> str:
        """Return the table's cells, without `stages`."""
        return " | ".join([f"{self.ours:.2f}", *(_percent(self.differences[mode]) for mode in MODES[1:])])


def compared(case: Case, folder: str) -> Compared:
    """Simulate a case here and in SimGrid."""
    passed = case.passage()
    bandwidth_alone = 1e3 * passed.seconds(NBYTES, Link(0.0, 1 / BANDWIDTH), 0.0)
    nearest = case.placed.network.nearest * HOP_S
    ours = dict.fromkeys(MODES, bandwidth_alone) | {
        "latency": 1e3 * passed.seconds(NBYTES, Link(nearest, 1 / BANDWIDTH), HOP_S)
    }
    theirs = {mode: _alone(simulated, case, mode, folder) for mode in MODES}
    return Compared(bandwidth_alone, {mode: None if ms is None else ms / ours[mode] - 1 for mode, ms in theirs.items()})


def _alone(function: Callable[..., Any], *arguments: object) -> Any:
    """Call in a separate process: SimGrid simulates once in a process.

    Raises:
        BrokenProcessPool: SimGrid has ended the process, with its reason on standard error.
    """
    with ProcessPoolExecutor(1, get_context("fork")) as processes:
        return processes.submit(function, *arguments).result()


def _version(folder: str) -> str:
    return str(_simgrid(folder).simgrid_version)


def _percent(difference: float | None) -> str:
    return "–" if difference is None else f"{difference:+.1%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simgrid", default="/usr/lib/python3/dist-packages", help="folder of SimGrid's Python module")
    folder = parser.parse_args().simgrid
    try:
        version = _alone(_version, folder)
    except ImportError as error:
        parser.exit(2, f"SimGrid's Python module cannot be imported ({error}): apt-get install python3-simgrid\n")
    print(f"SimGrid {version}, {RANKS} ranks, {NBYTES / 1e6:g} MB, links of {8 * BANDWIDTH / 1e9:g} Gbit/s\n")
    print(f"| network | schedule |{' in order, ms | own | ranks | latency | random, ms | own | ranks | latency |'}")
    print("|" + "---|" * 10)
    everything = []
    for network in NETWORKS:
        for schedule in SCHEDULES:
            pair = [compared(Case(schedule, network, seed), folder) for seed in (None, 0)]
            everything += pair
            print(f"| {network} | {schedule} | {' | '.join(each.cells() for each in pair)} |", flush=True)
    print(f"\nstages: {_largest(everything, 'stages')} at most")
    ties = [compared(Case(schedule, network, 0), folder) for network in TIES for schedule in SCHEDULES]
    print(f"torus, random, with SimGrid's choice between two ways as long: own {_largest(ties, 'own')} at most")


def _largest(everything: list[Compared], mode: str) -> str:
    found = [each.differences[mode] for each in everything]
    return f"{max(abs(difference) for difference in found if difference is not None):.4%}"


if __name__ == "__main__":
    main()
