"""One unit of a divided model: its parameters as a vector, of which each rank keeps a part, and its collectives.

    all-gather        every rank gets the whole vector             gather
    reduce-scatter    each rank gets the sum of its part            reduce

Both are the halves of a ring all-reduce (`collectives.ring`), so a gather and a reduction of n bytes cost a rank
2(N−1)/N·n bytes, as an all-reduce does. Rank r keeps the chunk that reduce-scatter leaves there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from farandole.collectives.executor import run
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER
from farandole.errors import UsageError
from farandole.model_parallel.zero import ShardedOptimizer
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime import devices
from farandole.runtime.buffers import KINDS
from farandole.runtime.world import World
from farandole.sharded.memory import Meter
from farandole.sharded.plan import Planned


class Unit:
    """A unit on this rank.

    Args:
        stage: what is divided: 1 the optimizer's state, 2 gradients too, 3 parameters too.

    Attributes:
        own: the slice of the vector that this rank keeps and moves.
        whole: all parameters of the unit, shape (numel,); None while only `shard` is there (stage 3).
        shard, shard_gradient: this rank's part, and the sum of all ranks' gradients of it.
        gradient: this rank's gradient of all parameters, shape (numel,); None while there is none.
        optimizer: moves `shard`.

    Raises:
        UsageError: the parameters are of different types, or of one that MPI cannot add.
    """

    def __init__(self, world: World, planned: Planned, stage: int, make_optimizer: MakeOptimizer, meter: Meter) -> None:
        self.world, self.name, self.module, self.stage, self.meter = world, planned.name, planned.module, stage, meter
        self.parameters = planned.parameters
        first = self.parameters[0]
        for each in self.parameters:
            if each.dtype != first.dtype or each.dtype not in KINDS:
                raise UsageError(
                    f"unit {self.name} has parameters of {each.dtype} and {first.dtype}: the parameters of a unit must "
                    "all be float32, float64 or float16, or be frozen (requires_grad=False)"
                )
        self._shapes = [each.shape for each in self.parameters]
        self._numels = [each.numel() for each in self.parameters]
        self.whole: Tensor | None = torch.cat([each.data.reshape(-1) for each in self.parameters])
        self.numel, self.nbytes = self.whole.numel(), self.whole.nbytes
        self.own = ShardedOptimizer.part_of(self.numel, world.comm.rank, world.comm.size)
        self.gradient: Tensor | None = None
        self.missing = 0  # gradients of this step
        self.is_reduced = False
        meter.hold("parameters", self.nbytes)
        self._show()
        if stage == 1:
            self._make_gradient()
            assert self.gradient is not None
        self.shard = self.whole[self.own]
        self.shard_gradient = torch.zeros_like(self.shard) if self.gradient is None else self.gradient[self.own]
        if stage == 3:
            self.shard = self.shard.clone()
            meter.hold("parameters", self.shard.nbytes)
            self.free()
        if stage > 1:
            meter.hold("gradients", self.shard_gradient.nbytes)
        self.optimizer = make_optimizer(self.shard, self.shard_gradient)
        meter.hold("optimizer_state", sum(each.nbytes for each in self.optimizer.state.values() if each.dim()))

    def begin(self) -> None:
        """A step begins."""
        self.missing, self.is_reduced = len(self.parameters), False
        if self.gradient is not None:
            self.gradient.zero_()

    def gather(self) -> None:
        """Have all parameters on this rank. Collective; nothing happens where they are there."""
        if self.whole is not None:
            return
        with self.world.communicate("all-gather"):
            whole = devices.empty_on_host([self.numel], self.shard.dtype, self.shard.device)
            whole[self.own] = self.shard
            run(ALL_GATHER, self.world.comm, whole.numpy())
            self.whole = whole.to(self.shard.device)
        self.meter.hold("parameters", self.nbytes)
        self._show()

    def share(self) -> None:
        """Bring the parts that the ranks have moved to all of them (stages 1 and 2). Collective."""
        assert self.whole is not None
        with self.world.communicate("all-gather"):
            whole = devices.on_host(self.whole)
            run(ALL_GATHER, self.world.comm, whole.numpy())
            self.whole.copy_(whole)

    def free(self) -> None:
        """Keep only this rank's part of the parameters."""
        if self.whole is not None:
            for each in self.parameters:
                each.data = each.data.new_empty(0)
            self.whole = None
            self.meter.hold("parameters", -self.nbytes)

    def expect_gradients(self) -> None:
        """Backward comes to this unit: have its parameters, and memory for its gradient."""
        if not self.is_reduced:
            self.gather()
            if self.gradient is None:
                self._make_gradient()

    def reduce(self) -> None:
        """Add up all ranks' gradients of this rank's part, and free the rest (stages 2 and 3). Collective."""
        self.expect_gradients()
        assert self.gradient is not None
        for each, own in zip(self.parameters, self._parts(self.gradient), strict=True):
            if each.grad is not None and each.grad.data_ptr() != own.data_ptr():
                own.copy_(each.grad.to_dense())
        with self.world.communicate("reduce-scatter"):
            gradient = devices.on_host(self.gradient)
            run(REDUCE_SCATTER, self.world.comm, gradient.numpy())
            self.shard_gradient.copy_(gradient[self.own])
        self.is_reduced = True
        if self.stage > 1:
            for each in self.parameters:
                each.grad = None
            self.gradient = None
            self.meter.hold("gradients", -self.nbytes)
        if self.stage == 3:
            self.free()

    def _make_gradient(self) -> None:
        assert self.whole is not None
        self.gradient = torch.zeros_like(self.whole)
        self.meter.hold("gradients", self.nbytes)
        for each, own in zip(self.parameters, self._parts(self.gradient), strict=True):
            each.grad = own

    def _show(self) -> None:
        """Make the module's parameters views of the whole vector."""
        assert self.whole is not None
        for each, own in zip(self.parameters, self._parts(self.whole), strict=True):
            each.data = own

    def _parts(self, vector: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(vector.split(self._numels), self._shapes, strict=True)]
