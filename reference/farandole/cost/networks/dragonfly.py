"""The dragonfly: groups of routers, each linked to all others of its group, and a link between any two groups.

    p hosts on each router, a routers in each group, h links of each router to other groups, at most a·h + 1 groups

A message takes at most three links between routers: to the router of its group that has the link to the receiver's
group, over that link, and to the receiver's router (minimal routing). A balanced dragonfly has a = 2p = 2h. If all
hosts of a group send to one other group, all a·p messages share one link; the paper routes such traffic over a third
group, which is not simulated here.

The links of a group to the other groups, in order, are divided over its routers, h each. Source: Kim, Dally, Scott &
Abts, "Technology-driven, highly-scalable dragonfly topology", 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.cost.networks.network import Network, Wire
from farandole.cost.networks.tree_shaped import down, up


@dataclass(frozen=True)
class Dragonfly(Network):
    """
    Attributes:
        per_router: p, the hosts of each router.
        routers: a, of each group.
        outward: h, the links of each router to other groups.
        groups: how many there are.
    """

    per_router: int
    routers: int
    outward: int
    groups: int

    @property
    def hosts(self) -> int:
        return self.groups * self.routers * self.per_router

    def route(self, source: int, target: int) -> list[Wire]:
        here, there = source // self.per_router, target // self.per_router  # routers, numbered over all groups
        group, other = here // self.routers, there // self.routers
        wires = [up(source)]
        if group == other:
            wires += _between(here, there)
        else:
            wires += _between(here, self._way_out(group, other))
            wires.append((f"group {group} to group {other}", 1.0))
            wires += _between(self._way_out(other, group), there)
        return [*wires, down(target)]

    def _way_out(self, group: int, other: int) -> int:
        """Return the router of `group` that has the link to the other group."""
        link = other if other < group else other - 1
        return group * self.routers + link // self.outward


def balanced(per_router: int) -> Dragonfly:
    """Return the largest balanced dragonfly with this number of hosts on each router."""
    routers = 2 * per_router
    return Dragonfly(per_router, routers, per_router, routers * per_router + 1)


def _between(router: int, other: int) -> list[Wire]:
    """Return the wire between two routers of a group; none if they are the same."""
    return [] if router == other else [(f"router {router} to router {other}", 1.0)]
