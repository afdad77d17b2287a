"""The optimizer over the data-parallel ranks: replicated, or with its state divided (ZeRO, stage 1).

Replicated: an all-reduce gives every rank the whole gradient, and each moves all parameters alike.
Divided: every rank moves only its part, so it needs the optimizer's state of that part only:

    reduce-scatter   each rank gets the sum of one part of the gradient
    update           and moves that part of the parameters, with 1/D of the state
    all-gather       every rank gets all parts of the parameters

A ring all-reduce is a reduce-scatter followed by an all-gather, so both move 2(D−1)/D·n bytes a
rank: the memory is saved for nothing. Source: Rajbhandari et al., "ZeRO: memory optimizations
toward training trillion parameter models", 2020. On a card the whole gradient goes to the host and this rank's part of
the sum comes back; of the parameters this rank's part goes, and the others' come.
"""

from __future__ import annotations

from collections.abc import Callable

from farandole.collectives.executor import run
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.collectives.steps import chunk_slices
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import Communicator
from farandole.runtime.world import World


def add_up_gradients(world: World, comm: Communicator, flat: FlatBuffers, group: str = "") -> None:
    """Replace the gradients by their sum over `comm`, bitwise equal on all its ranks.

    Args:
        group: a name for these ranks, for the trace.
    """
    with world.communicate("all-reduce", group=group):
        flat.to_host()
        run(RING, comm, flat.gradients_np)
        flat.from_host()


class ReplicatedOptimizer:
    """Every rank has the whole state.

    Args:
        comm: the ranks that hold the same parameters, whose gradients are added up.
        make: of `models.optimizers`.
        group: a name for these ranks, for the trace.
        accept: whether to move by the gradient that has been added up, the same on all ranks; None: always. Only where
            every rank has the whole of it.
    """

    def __init__(
        self,
        world: World,
        comm: Communicator,
        flat: FlatBuffers,
        make: MakeOptimizer,
        group: str = "",
        accept: Callable[[], bool] | None = None,
    ) -> None:
        self.world, self.comm, self.flat, self.group, self.accept = world, comm, flat, group, accept
        own = self.part(len(flat.values))
        self.optimizer = make(flat.values[own], flat.gradients[own])

    def part(self, count: int) -> slice:
        """Return which of `count` parameters this rank moves: all."""
        return slice(0, count)

    def step(self) -> None:
        """Add up the gradients over `comm`, move the parameters, and set the gradients to zero."""
        if self.comm.size > 1:
            add_up_gradients(self.world, self.comm, self.flat, self.group)
        with self.world.compute("update"):
            if self.accept is None or self.accept():
                self.optimizer.step()
            self.flat.zero_gradients()

    def state_bytes(self) -> int:
        """Memory of the state, without its counters."""
        return sum(tensor.nbytes for tensor in self.optimizer.state.values() if tensor.dim())


class ShardedOptimizer(ReplicatedOptimizer):
    """Every rank has the state of its part (ZeRO-1)."""

    def part(self, count: int) -> slice:
        """Return the slice of `count` parameters that this rank updates: the chunk that reduce-scatter sums on it."""
        return self.part_of(count, self.comm.rank, self.comm.size)

    @staticmethod
    def part_of(count: int, rank: int, ranks: int) -> slice:
        """Return the slice of `count` parameters that rank `rank` of `ranks` updates."""
        return chunk_slices(count, ranks)[(rank + 1) % ranks]

    def step(self) -> None:
        own = self.part(len(self.flat.values))
        with self.world.communicate("reduce-scatter", group=self.group):
            self.flat.to_host()
            run(REDUCE_SCATTER, self.comm, self.flat.gradients_np)
            self.flat.from_host(own)
        with self.world.compute("update"):
            self.optimizer.step()
            self.flat.zero_gradients()
        with self.world.communicate("all-gather", group=self.group):
            self.flat.values_to_host(own)
            run(ALL_GATHER, self.comm, self.flat.values_np)
            self.flat.values_from_host(slice(own.start))
            self.flat.values_from_host(slice(own.stop, None))
