"""One switch, and racks below another switch.

    single switch    a host's message goes up its own link and down the receiver's: 2 wires
    two-level        a rack of R hosts has a switch, whose link to the upper switch has R/o times a host's capacity

With the oversubscription o = 1 all hosts of a rack can send to other racks at their links' speed. With o = 4 four times
as many want to as can: k > R/o messages from a rack get R/(k·o) of a link each. Data centres have had o = 2.5 to 8:
Al-Fares, Loukissas & Vahdat, "A scalable, commodity data center network architecture", 2008, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.cost.networks.network import Network, Wire


@dataclass(frozen=True)
class SingleSwitch(Network):
    """The network that all other simulations assume: only the hosts' own links are limited."""

    size: int

    @property
    def hosts(self) -> int:
        return self.size

    def route(self, source: int, target: int) -> list[Wire]:
        return [up(source), down(target)]


@dataclass(frozen=True)
class TwoLevel(Network):
    """
    Attributes:
        racks, rack: how many there are, and how many hosts each has.
        over: the oversubscription.
    """

    racks: int
    rack: int
    over: float

    @property
    def hosts(self) -> int:
        return self.racks * self.rack

    def route(self, source: int, target: int) -> list[Wire]:
        own, other = source // self.rack, target // self.rack
        if own == other:
            return [up(source), down(target)]
        capacity = self.rack / self.over
        return [up(source), (f"rack {own} up", capacity), (f"rack {other} down", capacity), down(target)]


def up(host: int) -> Wire:
    """Return a host's own wire to its switch."""
    return f"host {host} up", 1.0


def down(host: int) -> Wire:
    """Return the wire to a host from its switch."""
    return f"host {host} down", 1.0
