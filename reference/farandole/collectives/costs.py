"""The time of a schedule by the α-β-γ model, computed from its steps instead of a closed formula.

    α   seconds of latency per message
    β   seconds per byte sent
    γ   seconds per byte added

A step begins when the rank and its partners have reached it. It takes α + bβ for the longer of its two messages, and bγ
if it adds. Ranks that exchange no message do not wait for each other. Several messages of a step in the same direction
share the rank's one port, and so take α + Σbβ; with a port per partner each takes as long as it would alone. Source:
Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005, section 3 (other
letters; one port only).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from farandole.collectives.checker import rounds
from farandole.collectives.steps import Schedule, Step, chunk_slices


@dataclass(frozen=True)
class Link:
    """The cost of a message between two ranks: `alpha` in seconds, `beta` in seconds per byte."""

    alpha: float
    beta: float

    def message_s(self, nbytes: float) -> float:
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
        """Return the cost of a message between these two ranks."""
        if self.across is None or self.per_node is None or rank // self.per_node == other // self.per_node:
            return self.link
        return self.across

    def messages_s(self, rank: int, messages: Iterable[tuple[int, float]]) -> float:
        """Return the seconds that one step's messages in one direction take; each message is (partner, bytes)."""
        waiting: defaultdict[int, float] = defaultdict(float)
        for partner, nbytes in messages:
            waiting[partner] += nbytes
        links = {partner: self.between(rank, partner) for partner in waiting}
        if self.multiport:
            return max((links[partner].message_s(nbytes) for partner, nbytes in waiting.items()), default=0.0)
        carried = sum(links[partner].beta * nbytes for partner, nbytes in waiting.items())
        return max((link.alpha for link in links.values()), default=0.0) + carried


def predicted_s(schedule: Schedule, ranks: int, nbytes: int, machine: Machine) -> float:
    """Return the seconds from a common start until the last of `ranks` has done its part, for a vector of `nbytes`."""
    lengths = [part.stop - part.start for part in chunk_slices(nbytes, schedule.chunks(ranks))]
    done = [0.0] * ranks
    for steps in rounds(schedule, ranks):
        before = list(done)
        for rank, step in steps:
            partners = {each for exchange in step.exchanges for each in (exchange.to, exchange.source)} - {None}
            begins = max(before[each] for each in (rank, *partners) if each is not None)
            done[rank] = begins + _step_s(rank, step, lengths, machine)
    return max(done)


def critical_path_s(schedule: Schedule, ranks: int, nbytes: float, machine: Machine) -> float:
    """Return the seconds that `schedule` takes, by the steps of its critical rank alone, with chunks of equal length.

    O(steps of one rank), where `predicted_s` follows every rank: this is how 10,000 ranks are costed.
    """
    assert schedule.critical, f"{schedule.name} has no critical rank"
    chunks = schedule.chunks(ranks)
    lengths, rank = [nbytes / chunks] * chunks, schedule.critical(ranks)
    return sum(_step_s(rank, step, lengths, machine) for step in schedule.steps(rank, ranks))


@lru_cache
def coefficients(schedule: Schedule, ranks: int, multiport: bool = False) -> tuple[float, float, float]:
    """Return how often α, nβ and nγ are in the time of `ranks` for n bytes: for a ring of 4, (6, 1.5, 0.75).

    Each is the longest path through the steps by itself. Their sum is the whole time where all ranks do alike.
    Cost: O(steps of the critical rank), or of all ranks where a schedule has none or there are several ports.

    Args:
        multiport: as in `Machine`.
    """
    if schedule.critical and not multiport:
        return _coefficients_of(schedule.steps(schedule.critical(ranks), ranks), schedule.chunks(ranks))
    nbytes = schedule.chunks(ranks)  # equal chunks, of any length
    units = (Link(1, 0), 0.0), (Link(0, 1 / nbytes), 0.0), (Link(0, 0), 1 / nbytes)
    links = (Machine(link, gamma, multiport=multiport) for link, gamma in units)
    alphas, betas, gammas = (predicted_s(schedule, ranks, nbytes, machine) for machine in links)
    return alphas, betas, gammas


def _step_s(rank: int, step: Step, lengths: Sequence[float], machine: Machine) -> float:
    """Return the seconds of one rank's step, for chunks of these lengths in bytes."""
    sent = [(each.to, sum(lengths[chunk] for chunk in each.sent)) for each in step.exchanges if each.to is not None]
    received = [(each.source, sum(lengths[chunk] for chunk in each.received))
                for each in step.exchanges if each.source is not None]  # fmt: skip
    added = sum(lengths[chunk] for each in step.exchanges if each.reduce for chunk in each.received)
    return max(machine.messages_s(rank, sent), machine.messages_s(rank, received)) + added * machine.gamma


def _coefficients_of(steps: Iterable[Step], chunks: int) -> tuple[float, float, float]:
    """Return how often α, nβ and nγ are in these steps of one rank, one after the other, over one port."""
    alphas = longer = added = 0
    for step in steps:
        sent = received = 0
        for each in step.exchanges:
            sent += len(each.sent)
            received += len(each.received)
            added += len(each.received) if each.reduce else 0
        alphas += 1
        longer += max(sent, received)
    return alphas, longer / chunks, added / chunks


def bus_factor(ranks: int) -> float:
    """n/t times this is an all-reduce's bus bandwidth: what each rank's link carries, whatever their number.

    Source: the convention of NVIDIA's nccl-tests, where it is derived.
    """
    return 2 * (ranks - 1) / ranks
