"""Hierarchical all-reduce: first within each node, then across the nodes, then within again.

Between two nodes a message takes longer, and there are fewer wires than ranks. So each vector is first summed up
among the L ranks of a node, each of which ends with one of L parts; the ranks with the same part, one on each of M
nodes, sum it up over the nodes, all L groups at the same time; and within each node the parts are given back.

    within     reduce-scatter in a ring of L      (L−1)/L·n bytes a rank
    across     all-reduce in a ring of M          2(M−1)/M·n/L, the only ones that leave the node
    within     all-gather in a ring of L          (L−1)/L·n

A plain ring sends 2(P−1)/P·n over the link between two nodes, and waits 2(P−1) times for it; here a node sends
2(M−1)/M·n with all its ranks together, and waits 2(M−1) times.

This is the schedule, which can be checked, drawn and costed for any L and M. What runs is `node_aware`, which has no
messages within a node.

Cost: 2(L−1)(α + n/L·β) + 2(M−1)(α' + n/(LM)·β') with α', β' those between nodes, and additions as in a ring.
Sources: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018 (2D-torus all-reduce);
Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019. The
three-phase form, in which one leader per node communicates with the other nodes, is earlier: Jia et al., "Highly
scalable deep learning training system with mixed-precision: training ImageNet in four minutes", 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from farandole.collectives import ring
from farandole.collectives.steps import Exchange, Schedule


@lru_cache
def hierarchical(per_node: int) -> Schedule:
    """Return the schedule for nodes of this number of ranks, numbered one after the other.

    Raises, when it is run:
        ValueError: the ranks do not fill the last node.
    """

    def steps(rank: int, size: int) -> Iterator[Exchange]:
        nodes = _nodes(size, per_node)
        node, local = divmod(rank, per_node)
        part = (local + 1) % per_node  # what the reduce-scatter leaves with this rank
        for step in ring.reduce_scatter(local, per_node):
            yield _within(step, node, nodes)
        for step in ring.all_reduce(node, nodes):
            yield _across(step, local, part, nodes)
        for step in ring.all_gather(local, per_node):
            yield _within(step, node, nodes)

    def _within(step: Exchange, node: int, nodes: int) -> Exchange:
        """Return a step of one node's ring: its chunks are as many of ours as there are nodes."""
        first = node * per_node
        return replace(step, send=_times(step.send, nodes), recv=_times(step.recv, nodes), count=nodes,
                       to=_plus(step.to, first), source=_plus(step.source, first))  # fmt: skip

    def _across(step: Exchange, local: int, part: int, nodes: int) -> Exchange:
        """Return a step of the ring of all ranks that have the same part."""
        first = part * nodes
        return replace(step, send=_plus(step.send, first), recv=_plus(step.recv, first),
                       to=_plus(_times(step.to, per_node), local),
                       source=_plus(_times(step.source, per_node), local))  # fmt: skip

    return Schedule(
        f"hierarchical, {per_node} a node",
        steps,
        lambda size: per_node * _nodes(size, per_node),
        critical=lambda size: 0,
        uniform=True,
        operation="all-reduce",
    )


def _nodes(size: int, per_node: int) -> int:
    nodes, rest = divmod(size, per_node)
    if rest:
        raise ValueError(f"{size} ranks do not fill nodes of {per_node}")
    return nodes


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None else number * factor


def _plus(number: int | None, offset: int) -> int | None:
    return None if number is None else number + offset
