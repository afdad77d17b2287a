"""The time of a schedule's messages over a network, stage by stage.

All messages of a stage begin at the same time and share the wires (`fair_sharing`); the next stage begins when the last
one has arrived. A message of b bytes that has the wires to itself takes

    α + h·(links − least) + bβ        h: a hop's latency; `links` on its path, `least` on the shortest path there is

A real rank begins its next step when it has its partners' messages, and does not wait for others. A stage that ends for
all at once is slower where some messages of a stage take longer than others, and never faster than the fullest wire. It
is chosen since equal stages take equal times: each is computed once. What it costs is measured beside another simulator
(docs/cost.md).

Messages within a node do not enter the network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.networks.fair_sharing import EQUAL, Vector, loads, passing_times, paths, wire_bound
from farandole.cost.networks.network import Placed
from farandole.cost.networks.stages import Stage
from farandole.cost.networks.tree_shaped import SingleSwitch


@dataclass(frozen=True)
class Passed:
    """One stage's messages over a network.

    Attributes:
        times: how often the schedule has this stage.
        alphas: of each message, how often α is in its time: 1, or less within a node.
        further: of each message, the links beyond those of the shortest path.
        shared: of each message, the seconds until it has passed, for a vector of one byte and β = 1.
    """

    times: int
    alphas: Vector
    further: Vector
    shared: Vector

    def arrivals(self, nbytes: float, link: Link, hop_s: float) -> Vector:
        """Return when each message of the stage has arrived."""
        arrived: Vector = self.alphas * link.alpha + self.further * hop_s + self.shared * nbytes * link.beta
        return arrived


@dataclass(frozen=True)
class Passage:
    """A whole schedule over a network.

    Attributes:
        bottleneck: the name of the wire at which most time is lost: stage by stage, what it needs longer than the
            hosts' own links would; "": none does.
        alike: how many wires lose as much.
    """

    stages: Sequence[Passed]
    bottleneck: str
    alike: int

    def seconds(self, nbytes: float, link: Link, hop_s: float) -> float:
        """Return for how long the messages of a vector of `nbytes` take."""
        return float(sum(stage.times * stage.arrivals(nbytes, link, hop_s).max() for stage in self.stages))


def passage(stages: Sequence[Stage], placed: Placed, workers: int, per_node: int = 1, within: float = 0.0) -> Passage:
    """Send a schedule's messages through a network.

    Args:
        per_node: workers of a node, numbered one after the other.
        within: the cost of a message within a node, relative to one over a host's link.
    """
    places = placed.places(workers, per_node)
    carried: defaultdict[str, float] = defaultdict(float)  # wire → seconds of its messages
    lost: defaultdict[str, float] = defaultdict(float)  # … beyond those of the hosts' links
    passed = []
    for stage in stages:
        amounts = np.array([part for _, _, part in stage.messages])
        outside = np.array([per_node == 1 or sender // per_node != receiver // per_node
                            for sender, receiver, _ in stage.messages])  # fmt: skip
        alphas, further, shared = np.where(outside, 1.0, within), np.zeros(len(amounts)), amounts * within
        ends = [(places[message[0]], places[message[1]])
                for message, enters in zip(stage.messages, outside, strict=True) if enters]  # fmt: skip
        if ends:
            given = paths([placed.network.route(*each) for each in ends])
            amounts = amounts[outside]
            shared[outside] = passing_times(given, amounts)
            further[outside] = given.lengths - placed.network.nearest
            own = wire_bound(paths([SingleSwitch(placed.network.hosts).route(*each) for each in ends]), amounts)
            for name, seconds in zip(given.names, loads(given, amounts).tolist(), strict=True):
                carried[name] += stage.times * seconds
                lost[name] += stage.times * max(0.0, seconds - own)
        passed.append(Passed(stage.times, alphas, further, shared))
    load, most = max(carried.values(), default=0.0), max(lost.values(), default=0.0)
    narrow = [name for name, seconds in lost.items() if most > load * EQUAL and seconds >= most * (1 - EQUAL)]
    return Passage(passed, narrow[0] if narrow else "", len(narrow))
