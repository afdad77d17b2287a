"""What a schedule takes, by the α-β-γ model: computed from the steps themselves, not from a formula.

    α   seconds until a message gets going
    β   seconds for each byte on its way
    γ   seconds for each byte that is added to another

A step begins when the rank and those it talks to have come to it, takes α + bβ for the longer of its two messages,
and bγ where it adds; ranks that do not talk to each other do not wait for each other. Several messages of a step in the
same direction share the rank's one port, and so take α + Σbβ; with a port per partner each takes as long as it would
alone. Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005,
section 3 (there with other letters; its model has one port).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from farandole.collectives.checker import rounds
from farandole.collectives.steps import Schedule, chunk_slices


@dataclass(frozen=True)
class Link:
    """What a message costs between two ranks: `alpha` in seconds, `beta` in seconds per byte."""

    alpha: float
    beta: float

    def message_s(self, nbytes: int) -> float:
        return self.alpha + nbytes * self.beta


@dataclass(frozen=True)
class Machine:
    """The costs of one machine.

    Attributes:
        link: between any two ranks of a node.
        gamma: seconds for each byte that is added.
        across: between two nodes; None: like `link`.
        per_node: ranks of a node, numbered one after the other; None: all are on one.
        multiport: whether a rank has a separate link to each partner, as to its neighbours in a torus; otherwise all
            its messages share one link, as behind a network card.
    """

    link: Link
    gamma: float
    across: Link | None = None
    per_node: int | None = None
    multiport: bool = False

    def between(self, rank: int, other: int) -> Link:
        """What a message between these two costs."""
        if self.across is None or self.per_node is None or rank // self.per_node == other // self.per_node:
            return self.link
        return self.across

    def messages_s(self, rank: int, messages: Iterable[tuple[int, int]]) -> float:
        """Return the seconds that one step's messages in one direction take; each message is (partner, bytes)."""
        waiting: Counter[int] = Counter()
        for partner, nbytes in messages:
            waiting[partner] += nbytes
        links = {partner: self.between(rank, partner) for partner in waiting}
        if self.multiport:
            return max((links[partner].message_s(nbytes) for partner, nbytes in waiting.items()), default=0.0)
        carried = sum(links[partner].beta * nbytes for partner, nbytes in waiting.items())
        return max((link.alpha for link in links.values()), default=0.0) + carried


def predicted_s(schedule: Schedule, ranks: int, nbytes: int, machine: Machine) -> float:
    """Seconds from a common start until the last of `ranks` has done its part, for a vector of `nbytes`."""
    lengths = [part.stop - part.start for part in chunk_slices(nbytes, schedule.chunks(ranks))]
    done = [0.0] * ranks
    for steps in rounds(schedule, ranks):
        before = list(done)
        for rank, step in steps:
            sent = [(each.to, sum(lengths[chunk] for chunk in each.sent))
                    for each in step.exchanges if each.to is not None]  # fmt: skip
            received = [(each.source, sum(lengths[chunk] for chunk in each.received))
                        for each in step.exchanges if each.source is not None]  # fmt: skip
            added = sum(lengths[chunk] for each in step.exchanges if each.reduce for chunk in each.received)
            begins = max(before[each] for each in (rank, *(partner for partner, _ in sent + received)))
            longer = max(machine.messages_s(rank, sent), machine.messages_s(rank, received))
            done[rank] = begins + longer + added * machine.gamma
    return max(done)


def coefficients(schedule: Schedule, ranks: int, multiport: bool = False) -> tuple[float, float, float]:
    """How often α, nβ and nγ are in the time of `ranks` for a vector of n bytes: for a ring of 4, (6, 1.5, 0.75).

    Each is the longest way through the steps by itself. Their sum is the whole time where all ranks do alike.

    Args:
        multiport: as in `Machine`.
    """
    nbytes = schedule.chunks(ranks)  # equal chunks, of any length
    units = (Link(1, 0), 0.0), (Link(0, 1 / nbytes), 0.0), (Link(0, 0), 1 / nbytes)
    links = (Machine(link, gamma, multiport=multiport) for link, gamma in units)
    alphas, betas, gammas = (predicted_s(schedule, ranks, nbytes, machine) for machine in links)
    return alphas, betas, gammas


def bus_factor(ranks: int) -> float:
    """n/t times this is an all-reduce's bus bandwidth: what each rank's link carries, whatever their number.

    Source: the convention of NVIDIA's nccl-tests, where it is derived.
    """
    return 2 * (ranks - 1) / ranks
