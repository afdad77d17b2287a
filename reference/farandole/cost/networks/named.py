"""The networks by their names, as ``farandole simulate --network`` writes them.

    single-switch                  only each host's own link is limited
    two-level:rack=8,over=4        racks of 8 hosts, whose links upward have a quarter of their hosts' capacity
    fat-tree:ports=8,routing=hash  the smallest that has room, if no ports are given; routing=spread, hash or modulo
    dragonfly:per-router=2         the largest balanced one with 2 hosts on a router; the smallest that has room
    torus:sides=4x4x8              two dimensions, as square as the number of workers allows, if no sides are given

placement=random puts the workers on hosts at random, placement=by-stage those of a pipeline's stage beside each other,
and hop-us=0.5 is the latency of each link beyond those of the shortest path; both are for all networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from farandole.cost.networks.dragonfly import balanced
from farandole.cost.networks.fat_tree import ROUTINGS, FatTree
from farandole.cost.networks.network import Network, Placed
from farandole.cost.networks.torus import Torus, square
from farandole.cost.networks.tree_shaped import SingleSwitch, TwoLevel
from farandole.errors import UsageError
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import parse_integer, parse_real

FORM = (
    "single-switch, two-level:rack=8,over=4, fat-tree:ports=8,routing=hash, dragonfly:per-router=2 or torus:sides=4x4, "
    "with placement=random, placement=by-stage or hop-us=0.5"
)
PLACEMENTS = ("order", "random", "by-stage")
HOP_US = 0.5  # of a switch and its cable, as in a data centre
Values = Mapping[str, str]


def _two_level(workers: int, values: Values) -> Network:
    rack, over = parse_integer(values.get("rack", "8")), parse_real(values.get("over", "4"))
    _demand(rack >= 1 and over > 0, "rack is 1 or more, over above 0")
    return TwoLevel(-(-workers // rack), rack, over)


def _fat_tree(workers: int, values: Values) -> Network:
    routing = values.get("routing", ROUTINGS[0])
    _demand(routing in ROUTINGS, f"routing is {', '.join(ROUTINGS[:-1])} or {ROUTINGS[-1]}")
    if "ports" in values:
        ports = parse_integer(values["ports"])
        _demand(ports >= 2 and ports % 2 == 0, "ports is an even number from 2 on")
        return FatTree(ports, routing)
    return FatTree(next(ports for ports in count(2, 2) if FatTree(ports).hosts >= workers), routing)


def _dragonfly(workers: int, values: Values) -> Network:
    if "per-router" in values:
        per_router = parse_integer(values["per-router"])
        _demand(per_router >= 1, "per-router is 1 or more")
        return balanced(per_router)
    return next(network for network in map(balanced, count(1)) if network.hosts >= workers)


def _torus(workers: int, values: Values) -> Network:
    if "sides" not in values:
        return square(workers)
    sides = tuple(map(parse_integer, values["sides"].split("x")))
    _demand(min(sides) >= 1, "sides are 1 or more")
    return Torus(sides)


KINDS: dict[str, tuple[Callable[[int, Values], Network], tuple[str, ...]]] = {
    "single-switch": (lambda workers, values: SingleSwitch(workers), ()),
    "two-level": (_two_level, ("rack", "over")),
    "fat-tree": (_fat_tree, ("ports", "routing")),
    "dragonfly": (_dragonfly, ("per-router",)),
    "torus": (_torus, ("sides",)),
}


@dataclass(frozen=True)
class NetworkChoice:
    """A network for any number of workers.

    Attributes:
        text: as it was written.
        values: the options, without those for all networks.
        placement: one of `PLACEMENTS`.
        hop_s: latency of each link beyond those of the shortest path.
    """

    text: str
    kind: str
    values: tuple[tuple[str, str], ...] = ()
    placement: str = PLACEMENTS[0]
    hop_s: float = HOP_US / 1e6

    @property
    def by_stage(self) -> bool:
        """Return whether the workers of a pipeline's stage are numbered one after the other."""
        return self.placement == "by-stage"

    def placed(self, workers: int, seed: int) -> Placed:
        """Return the network for this number of workers, who are placed in it.

        Raises:
            UsageError: it has too few hosts, or an option has no such value.
        """
        try:
            network = KINDS[self.kind][0](workers, dict(self.values))
        except ValueError as error:
            raise UsageError(f"--network {self.text}: {error}") from error
        if network.hosts < workers:
            raise UsageError(f"--network {self.text} has {network.hosts} hosts, too few for {workers} workers")
        return Placed(network, seed if self.placement == "random" else None)


def parse(text: str) -> NetworkChoice:
    """Return the network that a text like two-level:rack=8 names.

    Raises:
        UsageError: it names none, with what would.
    """
    kind, colon, rest = text.partition(":")
    wrong = f"--network {text} does not fit: write it as {FORM}"
    if kind not in KINDS or (colon and not rest):
        raise UsageError(wrong)
    try:
        values = named_values(rest, FORM, {*KINDS[kind][1], "placement", "hop-us"}) if rest else {}
        placement, hop_us = values.pop("placement", "order"), parse_real(values.pop("hop-us", str(HOP_US)))
    except (ValueError, UsageError) as error:
        raise UsageError(wrong) from error
    if placement not in PLACEMENTS or hop_us < 0:
        raise UsageError(f"--network {text}: placement is order, random or by-stage, and hop-us 0 or more")
    choice = NetworkChoice(text, kind, tuple(sorted(values.items())), placement, hop_us / 1e6)
    choice.placed(1, 0)  # refuses wrong values
    return choice


def _demand(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what)
