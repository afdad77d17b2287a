"""The fat tree of switches with k ports each: as many wires up as down at every level.

    k pods       each with k/2 edge switches and k/2 aggregation switches, every edge switch linked to all of these
    k/2 hosts    on each edge switch, so k³/4 in all
    (k/2)²       core switches; aggregation switch a of every pod is linked to those from a·k/2 on, k/2 of them

Between two pods there are (k/2)² paths, one through each core switch. How a message uses them is the routing:

    spread    equal parts over all paths, as by spraying packets. All wires of a switch to the next level then carry the
              same, and act as one wire of their total capacity: no level is narrower than the hosts' links
    hash      one path, by a hash of sender and receiver (ECMP): two messages may meet on a wire while others are idle
    modulo    one path, by the receiver's number: where each host sends to the one that is s further, none meet

Source: Al-Fares, Loukissas & Vahdat, "A scalable, commodity data center network architecture", 2008. Modulo: Zahavi,
"D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees", 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from farandole.cost.networks.network import Network, Wire
from farandole.cost.networks.tree_shaped import down, up

ROUTINGS = ("spread", "hash", "modulo")


@dataclass(frozen=True)
class FatTree(Network):
    """
    Attributes:
        ports: k, of each switch; an even number.
        routing: one of `ROUTINGS`.
    """

    ports: int
    routing: str = "spread"

    @property
    def hosts(self) -> int:
        return self.ports**3 // 4

    def route(self, source: int, target: int) -> list[Wire]:
        half = self.ports // 2
        edge, other = source // half, target // half
        if edge == other:
            return [up(source), down(target)]
        pod, other_pod = edge // half, other // half
        if self.routing == "spread":
            between = _trunks(half, edge, other, pod, other_pod)
        else:
            aggregation, core = self._path(source, target)
            between = _wires(half, edge, other, pod, other_pod, aggregation, core)
        return [up(source), *between, down(target)]

    def _path(self, source: int, target: int) -> tuple[int, int]:
        """Return which aggregation switch of a pod is passed, and which of the core switches above it."""
        half = self.ports // 2
        if self.routing == "modulo":
            return target % half, target // half % half
        number = int.from_bytes(blake2b(f"{source} {target}".encode(), digest_size=8).digest(), "big")
        return number % half, number // half % half


def _trunks(half: int, edge: int, other: int, pod: int, other_pod: int) -> list[Wire]:
    """Return all wires of a switch, or of a pod, to the next level as one."""
    first, last = (f"edge switch {edge} up", float(half)), (f"edge switch {other} down", float(half))
    if pod == other_pod:
        return [first, last]
    return [first, (f"pod {pod} up", float(half**2)), (f"pod {other_pod} down", float(half**2)), last]


def _wires(half: int, edge: int, other: int, pod: int, other_pod: int, aggregation: int, core: int) -> list[Wire]:
    """Return the wires of one path."""
    here, there = pod * half + aggregation, other_pod * half + aggregation
    first, last = (f"edge {edge} to aggregation {here}", 1.0), (f"aggregation {there} to edge {other}", 1.0)
    if pod == other_pod:
        return [first, last]
    top = aggregation * half + core
    return [first, (f"aggregation {here} to core {top}", 1.0), (f"core {top} to aggregation {there}", 1.0), last]
