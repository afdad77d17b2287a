"""Who asks and who answers, so that pairs can average whenever one is ready and nobody waits in a circle.

Of two ranks that ask each other at the same moment both would wait for ever. So the ranks are divided: active ones ask,
passive ones answer, and only edges between the two are used. An answer waits for nothing, so every question gets one.

By their numbers, the even ones are active, if the edges left connect all ranks. Else a rank is active if its distance
from rank 0 is even, which always leaves them connected: every rank's shortest way to rank 0 changes sides at each edge.

Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", 2018, whose graph is bipartite
from the start.
"""

from __future__ import annotations

from farandole.decentralised.topologies import Edges, Topology, distances


def partners(graph: Topology) -> dict[int, tuple[int, ...]]:
    """Each active rank, and the passive ones it may ask; edges count both ways, in whatever round they are."""
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
