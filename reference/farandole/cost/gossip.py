"""D-PSGD at 10,000 workers: a worker that has its neighbours' messages begins its next step. All at once, in numpy.

Worker i of a graph, with a time c_i from the straggler distribution, d_i neighbours to send to, n bytes of parameters:

    sent      m_i = s_i + c_i + d_i·(α + nβ)      computed, and one message after the other on its own link
    begins    s_i ← max of m_i and of its sources' m_j

So a delay travels one edge a round, and in the end all workers take the pace of the slowest. Messages are counted over
the edges of the graph: without stragglers, where all workers have d neighbours, a step takes c + d·(α + nβ). Messages
that arrive at the same time do not share the receiver's link here, which sends as many itself. Over a network they
share that and all others: d_i·(α + nβ) becomes what `messages.sending_s` returns.

Every worker has its own x on the quadratic with noise. They are mixed by the weights of `decentralised.mixing`, before
or after the update as in `decentralised.dpsgd`, for all workers at once. The loss is the mean of the workers' own, as
in a record of dpsgd, so it contains how far they are apart. Cost: a few numbers for each edge and step. Sources:
Lian et al., 2017; the max-plus recursion: Baccelli et al., "Synchronization and linearity", 1992.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from farandole.cost.messages import sending_s
from farandole.cost.quadratic import CURVATURES, Copies
from farandole.cost.setting import Draws, Outcome, Setting, Vector
from farandole.decentralised.topologies import Topology, topology
from farandole.errors import UsageError

MOST_EDGES = 2_000_000


@dataclass(frozen=True)
class Round:
    """One round of a graph, for all workers.

    Attributes:
        heard: each worker itself and its sources, one worker's after the other's.
        firsts: where each worker's part of `heard` begins.
        weights: of each in `heard`, of shape (…, 1).
        sends: how many messages each worker sends.
        edges: (sender, receiver) of each message.
    """

    heard: NDArray[np.intp]
    firsts: NDArray[np.intp]
    weights: Vector
    sends: NDArray[np.intp]
    edges: tuple[tuple[int, int], ...]

    def mixed(self, x: Vector) -> Vector:
        """Return W·x."""
        after: Vector = np.add.reduceat(self.weights * x[self.heard], self.firsts)
        return after

    def latest(self, sent: Vector) -> Vector:
        """Return when each worker has its own vector and all its sources'."""
        begins: Vector = np.maximum.reduceat(sent[self.heard], self.firsts)
        return begins


def graph_of(name: str, workers: int) -> Topology:
    """
    Raises:
        UsageError: it has more edges than one would wait for.
    """
    degree = {"ring": 2, "torus": 4, "complete": workers - 1}.get(name, (workers - 1).bit_length())
    if workers * degree > MOST_EDGES:
        raise UsageError(
            f"--topology {name} has {workers * degree:,} edges with {workers} workers, and more than {MOST_EDGES:,} "
            "take too long: give fewer workers, or another"
        )
    return topology(name, workers)


@lru_cache
def rounds(name: str, workers: int) -> tuple[Round, ...]:
    """Return the rounds of a graph, in order."""
    graph = graph_of(name, workers)
    return tuple(_round(graph, number) for number in range(len(graph.rounds)))


def _round(graph: Topology, number: int) -> Round:
    """Return a round with Metropolis' weights, as `mixing.doubly_stochastic` has them in O(P) for each worker."""
    edges = tuple(sorted(graph.edges(number)))
    sources, hearers = np.array(edges, dtype=np.intp).reshape(-1, 2).T
    itself = np.arange(graph.ranks)
    sends = np.bincount(sources, minlength=graph.ranks)
    weights = 1 / (1 + np.maximum(sends[sources], sends[hearers]))
    kept = 1 - np.bincount(hearers, weights, graph.ranks)
    order = np.lexsort((np.concatenate([itself, sources]), np.concatenate([itself, hearers])))
    heard, at = np.concatenate([itself, sources])[order], np.concatenate([itself, hearers])[order]
    return Round(heard, np.searchsorted(at, itself), np.concatenate([kept, weights])[order, None], sends, edges)


def simulated(setting: Setting, name: str = "ring", every: int = 1, after_update: bool = False) -> Outcome:
    """Simulate D-PSGD on the graph of that name.

    Args:
        every, after_update: as of `decentralised.dpsgd.DPSGD`.
    """
    outcome = Outcome()
    copies, graph = Copies(setting, outcome), rounds(name, setting.workers)
    sending = [sending_s(each.edges, setting) for each in graph]
    noise = np.random.default_rng([setting.seed, 1])
    begins = np.zeros(setting.workers)
    ends: list[float] = []  # of each step, when the last worker had done it
    for step, computing in enumerate(Draws(setting).block() * setting.compute_s):
        outcome.lead.update(_leads(step, begins, ends))
        moves = setting.lr * (CURVATURES * copies.x + noise.normal(scale=setting.noise, size=copies.x.shape))
        begins = begins + computing
        mixes = (step + 1) % every == 0
        if after_update or not mixes:
            copies.x = copies.x - moves
        if mixes:
            number = step // every % len(graph)
            mixing, sending_now = graph[number], sending[number]
            copies.x = mixing.mixed(copies.x)
            sent = begins + sending_now
            begins = mixing.latest(sent)
            outcome.comm_s += float(sending_now.sum())
            outcome.wait_s += float((begins - sent).sum())
            if not after_update:
                copies.x = copies.x - moves
        outcome.compute_s += float(computing.sum())
        outcome.computed += setting.workers
        ends.append(float(begins.max()))
        copies.look(ends[-1])
    outcome.wall_s = ends[-1]
    outcome.gradients = outcome.staleness[0] = setting.steps * setting.workers
    copies.finish()
    return outcome


def _leads(step: int, begins: Vector, ends: list[float]) -> Counter[int]:
    """Return the histogram of the workers' leads over the slowest, in steps, as they begin this step."""
    slowest = np.searchsorted(ends, begins, side="right")
    return Counter(dict(enumerate(np.bincount(step - slowest).tolist())))
