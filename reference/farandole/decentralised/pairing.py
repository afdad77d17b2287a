"""The rule of AD-PSGD: which ranks request an average, from which partners, and when; pure.

If two ranks requested an average from each other at the same time, both would wait for ever. So the ranks are divided:
active ranks request, passive ranks answer, and only edges between the two kinds are used. A passive rank waits for
nothing, so it answers every request.

Even ranks are active, if the remaining edges connect all ranks. Otherwise a rank is active if its distance from rank 0
is even, which always leaves them connected: every rank's shortest path to rank 0 changes sides at each edge.

`ad_psgd` carries this out over MPI, `cost.pairs` event by event for thousands of workers. Source: Lian et al.,
"Asynchronous decentralized parallel stochastic gradient descent", 2018, whose graph is bipartite from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from farandole.decentralised.topologies import Edges, Topology, distances


@dataclass(frozen=True)
class Pairing:
    """The partners of each active rank, and how often it requests an average.

    Attributes:
        partners: active rank → the passive ranks that may be its partners.
        every: an active rank's iterations from one average to the next.
    """

    partners: Mapping[int, tuple[int, ...]]
    every: int = 1

    def partner(self, rank: int, iterations: int, draw: Callable[[], float]) -> int | None:
        """Return the rank that `rank` averages with after its gradient; None: it does not average this time.

        Args:
            iterations: how many `rank` has begun, the present one included.
            draw: returns a random number, uniform in [0, 1); called if there is a choice.
        """
        others = self.partners.get(rank)
        if not others or iterations % self.every:
            return None
        return others[int(draw() * len(others))]


def average_pair(one: NDArray[Any], other: NDArray[Any]) -> None:
    """Replace both vectors by their mean: one ← other ← (one + other) / 2."""
    one += other
    one /= 2
    other[:] = one


def partners(graph: Topology) -> dict[int, tuple[int, ...]]:
    """Return each active rank's possible partners; edges count in both directions, whatever their round."""
    edges = graph.both_ways
    active = {rank for rank in range(graph.ranks) if rank % 2 == 0}
    if len(distances(_between(edges, active))) < graph.ranks:
        active = {rank for rank, distance in distances(edges).items() if distance % 2 == 0}
    asked: dict[int, list[int]] = {rank: [] for rank in sorted(active)}
    for one, other in sorted(_between(edges, active)):
        if one in active:
            asked[one].append(other)
    return {rank: tuple(others) for rank, others in asked.items()}


def _between(edges: Edges, active: set[int]) -> Edges:
    return frozenset((one, other) for one, other in edges if (one in active) != (other in active))
