"""Graphs over the ranks, as pure functions of the number of ranks: which ranks are neighbours.

    ring                    each rank and the next one                          degree 2
    torus                   the four around it, on a nearly square grid         degree 4
    exponential             rank i sends to i + 1, 2, 4, …  (mod P)             degree ⌈log₂P⌉
    one-peer-exponential    in round t only to i + 2^(t mod ⌈log₂P⌉)            degree 1
    complete                all other ranks                                     degree P − 1

A graph may change from round to round, and its edges may lead one way; those of ring, torus and complete lead both
ways. No graph has an edge from a rank to itself. Where two of a rank's neighbours are the same rank, as on a ring of
two, there is one edge. The torus of a prime number of ranks is a ring.

Cost: in each round a rank sends as many messages as it has outgoing edges. Sources: Lian et al., "Can decentralized
algorithms outperform centralized algorithms?", 2017 (ring, torus); Assran et al., "Stochastic gradient push for
distributed deep learning", 2019, and Ying et al., "Exponential graph is provably efficient for decentralized deep
training", 2021 (exponential graphs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

from farandole.errors import UsageError

Edges = frozenset[tuple[int, int]]  # (source, destination)


@dataclass(frozen=True)
class Topology:
    """A graph over the ranks, the same in every round or one after the other.

    Attributes:
        rounds: the edges of each round; after the last round the first one follows.
    """

    name: str
    ranks: int
    rounds: tuple[Edges, ...]

    def edges(self, number: int) -> Edges:
        """Return the edges of round `number`, from 0."""
        return self.rounds[number % len(self.rounds)]

    def destinations(self, rank: int, number: int) -> tuple[int, ...]:
        """Return the ranks that `rank` sends to in round `number`."""
        return self._neighbours[number % len(self.rounds)][0][rank]

    def sources(self, rank: int, number: int) -> tuple[int, ...]:
        """Return the ranks that `rank` receives from in round `number`."""
        return self._neighbours[number % len(self.rounds)][1][rank]

    @cached_property
    def _neighbours(self) -> list[tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]:
        """For each round, the destinations and the sources of each rank."""
        found = []
        for edges in self.rounds:
            destinations: list[list[int]] = [[] for _ in range(self.ranks)]
            sources: list[list[int]] = [[] for _ in range(self.ranks)]
            for source, to in sorted(edges):
                destinations[source].append(to)
                sources[to].append(source)
            found.append(([tuple(each) for each in destinations], [tuple(each) for each in sources]))
        return found

    @property
    def both_ways(self) -> Edges:
        """Return all pairs with an edge in any round, in either direction; each pair twice."""
        return symmetric(edge for edges in self.rounds for edge in edges)


def symmetric(edges: Iterable[tuple[int, int]]) -> Edges:
    """Return each edge and the edge back."""
    return frozenset(pair for one, other in edges for pair in ((one, other), (other, one)))


def ring(ranks: int) -> tuple[Edges, ...]:
    return (symmetric(_without_loops((rank, (rank + 1) % ranks) for rank in range(ranks))),)


def torus(ranks: int) -> tuple[Edges, ...]:
    rows = next(rows for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)
    columns = ranks // rows
    right = ((rank, rank - rank % columns + (rank + 1) % columns) for rank in range(ranks))
    down = ((rank, (rank + columns) % ranks) for rank in range(ranks))
    return (symmetric(_without_loops((*right, *down))),)


def exponential(ranks: int) -> tuple[Edges, ...]:
    return (frozenset(edge for edges in one_peer_exponential(ranks) for edge in edges),)


def one_peer_exponential(ranks: int) -> tuple[Edges, ...]:
    distances = [1 << power for power in range((ranks - 1).bit_length())]  # the powers of two below P
    rounds = [frozenset((rank, (rank + distance) % ranks) for rank in range(ranks)) for distance in distances]
    return tuple(rounds) or (frozenset(),)


def complete(ranks: int) -> tuple[Edges, ...]:
    return (_without_loops((one, other) for one in range(ranks) for other in range(ranks)),)


TOPOLOGIES: dict[str, Callable[[int], tuple[Edges, ...]]] = {
    "ring": ring,
    "torus": torus,
    "exponential": exponential,
    "one-peer-exponential": one_peer_exponential,
    "complete": complete,
}


def topology(name: str, ranks: int) -> Topology:
    """Return the graph called `name` over `ranks` ranks."""
    return Topology(name, ranks, TOPOLOGIES[name](ranks))


def check_connected(graph: Topology) -> None:
    """Check that information from any rank reaches all others.

    Raises:
        UsageError: naming two ranks without a path between them.
    """
    edges = [edge for of_round in graph.rounds for edge in of_round]
    # All ranks reach each other if rank 0 reaches all and all reach rank 0.
    if lost := set(range(graph.ranks)) - set(distances(edges)):
        raise UsageError(f"{graph.name} has no way from rank 0 to rank {min(lost)}: add an edge")
    if lost := set(range(graph.ranks)) - set(distances((to, source) for source, to in edges)):
        raise UsageError(f"{graph.name} has no way from rank {min(lost)} to rank 0: add an edge")


def distances(edges: Iterable[tuple[int, int]], start: int = 0) -> dict[int, int]:
    """Return the number of edges from `start` to each rank that can be reached from it."""
    onward: dict[int, list[int]] = {}
    for source, to in edges:
        onward.setdefault(source, []).append(to)
    found, border = {start: 0}, [start]
    while border:
        border = [to for source in border for to in onward.get(source, ()) if found.setdefault(to, -1) < 0]
        border = list(dict.fromkeys(border))
        found.update(dict.fromkeys(border, 1 + max(found.values())))
    return found


def _without_loops(edges: Iterable[tuple[int, int]]) -> Edges:
    return frozenset((source, to) for source, to in edges if source != to)
