"""The steps of `steps` over MPI: all receives and sends of a round are begun, then each is awaited.

No message waits for another one, so no graph can deadlock. A rank waits for its neighbours only, which may be a round
ahead of ranks further away. Messages are added in the order of their sources: same seed, same ranks, same bits.

Cost: per round a message of the vector's length for each outgoing edge; memory for one vector that is sent, and one for
each that is received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.loss_log import AllReduce, Observation
from farandole.decentralised.mixing import Rule
from farandole.decentralised.steps import Mixing
from farandole.decentralised.topologies import Topology
from farandole.runtime.communicator import Buffer
from farandole.runtime.world import World


class Mixer:
    """This rank's part of the rounds.

    Args:
        like: a vector of the length and type of those that will be mixed.

    Attributes:
        rounds: number of rounds so far.

    Raises:
        UsageError: the rule has no weights for this graph.
    """

    def __init__(self, world: World, graph: Topology, rule: Rule, like: Buffer) -> None:
        self.world = world
        # Every rank checks the whole graph, so that all of them find the same fault or none.
        plans = [[rule(graph, rank, number) for rank in range(world.size)] for number in range(len(graph.rounds))]
        self.plan = [steps[world.rank] for steps in plans]
        self.rounds = 0
        self._leaving = np.empty_like(like)
        self._arriving = [np.empty_like(like) for _ in range(max(len(step.sources) for step in self.plan))]

    def mix(self, vector: Buffer) -> None:
        """Mix `vector` with the neighbours' in the next round, in place. Collective; each waits for its neighbours."""
        step = self.plan[self.rounds % len(self.plan)]
        np.multiply(vector, step.share, out=self._leaving)
        vector *= step.keep

        def add(buffer: Buffer, weight: float) -> None:
            nonlocal vector
            buffer *= weight
            vector += buffer

        swap(self.world, step, f"mixing {self.rounds}", self._leaving, self._arriving, add)
        self.rounds += 1


def swap(
    world: World,
    step: Mixing,
    name: str,
    leaving: Buffer,
    arriving: Sequence[Buffer],
    take: Callable[[Buffer, float], None] = lambda buffer, weight: None,
) -> None:
    """Send `leaving` to the destinations of `step`, and receive from its sources. Collective; each waits for these.

    Args:
        name: of the round, the same on all ranks.
        arriving: a buffer for each source, in the order of `step.sources`.
        take: is called with each message once it has arrived, in that order, and its weight.
    """
    comm, trace, rank = world.comm, world.trace, world.rank
    receiving = [
        comm.begin_exchange([], source, [buffer], source, tag=0)
        for source, buffer in zip(step.sources, arriving, strict=False)
    ]
    sending = []
    for to in step.to:
        with trace.sending(f"send to {to}", f"{name}, {rank} to {to}"):
            sending.append(comm.begin_exchange([leaving], to, [], to, tag=0))
    for pending, buffer, weight in zip(receiving, arriving, step.weights, strict=False):
        with trace.receiving(f"receive from {pending.source}", f"{name}, {pending.source} to {rank}"):
            comm.complete(pending)
            take(buffer, weight)
    with trace.span("have sent", "communicate"):
        for pending in sending:
            comm.complete(pending)


def average(world: World, vector: Buffer) -> None:
    """Replace `vector` by the mean of all ranks' vectors, bitwise the same on each, for the evaluation. Collective."""
    with world.communicate("average"):
        ALL_REDUCES["ring"](world.comm, vector)
        vector /= world.size


def consensus(vector: Buffer, ranks: int) -> Observation:
    """Return a function that finds the consensus error (`mixing.consensus_error`) of all ranks' present vectors.

    Its two all-reduces belong to the record and not to the method, so they are not counted.
    """
    own = vector.astype(np.float64)

    def found(all_reduce: AllReduce) -> dict[str, float]:
        mean, square = np.empty_like(own), np.empty(1)
        all_reduce(own, mean, MPI.SUM)
        mean /= ranks
        all_reduce(np.array([np.sum((own - mean) ** 2)]), square, MPI.SUM)
        return {"consensus_error": float(np.sqrt(square[0] / ranks))}

    return found
