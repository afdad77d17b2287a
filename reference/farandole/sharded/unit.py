"""One unit of a divided model: its parameters as a vector, of which each rank keeps a part, and its collectives.

    all-gather        every rank gets the whole vector             gather, share
    reduce-scatter    each rank gets the sum of its part           reduce

Both are the halves of a ring all-reduce (`collectives.ring`), so a gather and a reduction of n bytes cost a rank
2(N−1)/N·n bytes, as an all-reduce does. Rank r keeps the chunk that reduce-scatter leaves there.

Where several groups of ranks hold a copy each (hybrid sharding), the ranks of a group divide the vector, and each part
is then added up by those that hold it in all groups: an all-reduce of 1/S of the gradient, for groups of S. With a
group for each node, only this part crosses the network between nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import torch
from torch import Tensor

from farandole.collectives.executor import run
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.model_parallel.zero import ShardedOptimizer
from farandole.models.optimizers import SGD
from farandole.runtime import devices
from farandole.runtime.communicator import Communicator
from farandole.sharded.communication import Communication
from farandole.sharded.flat_parameter import FlatParameter, as_numpy
from farandole.sharded.memory import Meter
from farandole.sharded.offload import onto_disk
from farandole.sharded.options import Sharding
from farandole.sharded.plan import Planned


class Unit:
    """A unit on this rank. Made together by all ranks that have it.

    Args:
        group: the ranks that divide it.
        copies: those that hold the same part of it; None: no other rank does.
        accumulates: a step has several backward passes; `add_up_copies` is called after the last one.

    Attributes:
        flat: its vector.
        own: the slice of the vector that this rank keeps and moves.
        nbytes: of the whole vector, in the type in which the unit computes.
        sum_nbytes: of the copy in which a gradient is added up; 0 where the unit computes in the type of its parts.
        whole: all parameters of the unit, shape (numel,); None while only `shard` is there (stage 3).
        shard, shard_gradient: this rank's part, and the sum of all ranks' gradients of it.
        gradient: this rank's gradient of all parameters, shape (numel,); None while there is none.
        optimizer: moves `shard`.

    Raises:
        UsageError: the parameters are of different types, or of one that MPI cannot add.
    """

    def __init__(
        self,
        group: Communicator,
        copies: Communicator | None,
        planned: Planned,
        sharding: Sharding,
        make_optimizer: MakeForUnit,
        meter: Meter,
        communication: Communication,
        accumulates: bool = False,
    ) -> None:
        self.name, self.module, self.parameters = planned.name, planned.module, planned.parameters
        self.stage, self.meter, self.communication = sharding.stage, meter, communication
        self.flat = FlatParameter(planned.name, planned.parameters)
        self.shapes, self.numel = self.flat.shapes, self.flat.numel
        self.group = group.split(0, group.rank)  # of its own: see `communication`
        self.copies = copies.split(0, copies.rank) if copies else None
        self.accumulates = accumulates
        self.device, self.dtype = self.flat.device, torch.bfloat16 if sharding.half else self.flat.dtype
        self.nbytes = self.numel * self.dtype.itemsize
        self.sum_nbytes = 0 if self.dtype == self.flat.dtype else self.numel * self.flat.dtype.itemsize
        self.own = ShardedOptimizer.part_of(self.numel, self.group.rank, self.group.size)
        self.missing = 0  # gradients of this step
        self.is_reduced = False
        self._sums = 0  # gradients in `shard_gradient`
        self._fetching: Future[None] | None = None
        self._fetched: Tensor | None = None
        self._reducing: Tensor | None = None
        self._make_parts(sharding, make_optimizer)

    def _make_parts(self, sharding: Sharding, make_optimizer: MakeForUnit) -> None:
        vector = self.flat.flattened()
        self.whole: Tensor | None = vector.to(self.dtype)
        self.gradient: Tensor | None = None
        self.meter.hold("parameters", self.nbytes)
        self.flat.show(self.whole)
        if self.stage == 1:
            self._make_gradient()
        place = torch.device("cpu") if sharding.offload else self.device
        self.keeps_parts = self.stage == 3 or sharding.half or place != self.device
        self.shard = vector[self.own].to(place, copy=True) if self.keeps_parts else self.whole[self.own]
        if self.gradient is None or self.keeps_parts:
            self.shard_gradient = torch.zeros_like(self.shard)
        else:
            self.shard_gradient = self.gradient[self.own]
        self.optimizer = make_optimizer(self)
        if place == self.device:
            if self.keeps_parts:
                self.meter.hold("optimizer_state" if sharding.half else "parameters", self.shard.nbytes)
            if self.stage > 1 or self.keeps_parts:
                self.meter.hold("gradients", self.shard_gradient.nbytes)
            if sharding.offload != "disk":
                state = self.optimizer.state.values()
                self.meter.hold("optimizer_state", sum(each.nbytes for each in state if each.dim()))
        if sharding.offload == "disk":
            onto_disk(self.optimizer)
        if self.stage == 3:
            self.free()

    def begin(self) -> None:
        """A step begins."""
        self.expect_another()
        self._sums = 0
        if self.gradient is not None:
            self.gradient.zero_()

    def expect_another(self) -> None:
        """Another backward pass is to come, whose gradient is added to that of the passes before it in this step."""
        self.missing, self.is_reduced = len(self.parameters), False

    def fetch(self) -> None:
        """Begin to gather the parameters, unless that has begun."""
        if self.whole is None and self._fetching is None:
            self.meter.hold("parameters", self.nbytes)
            self._fetching = self.communication.put("all-gather", self._gather)

    def gather(self) -> None:
        """Have all parameters on this rank. Collective; nothing happens where they are there."""
        if self.whole is None:
            self.fetch()
            self._arrive()
            assert self.whole is not None
            self.flat.show(self.whole)
            self.communication.gathered(self)

    def share(self) -> None:
        """Bring the parts that the ranks have moved to all of them (stages 1 and 2). Collective."""
        assert self.whole is not None
        if self.keeps_parts:
            self.whole[self.own] = self.shard.to(self.device, self.dtype)
        whole = self.whole
        if self.device.type != "cpu":  # only this rank's part leaves the card
            whole = devices.empty_on_host(self.whole.shape, self.dtype, self.device)
            whole[self.own].copy_(self.whole[self.own])
        self.communication.wait("all-gather", self.communication.put("all-gather", lambda: self._all_gather(whole)))
        if whole is not self.whole:
            for others in (slice(self.own.start), slice(self.own.stop, None)):
                self.whole[others].copy_(whole[others])

    def free(self) -> None:
        """Keep only this rank's part of the parameters."""
        if self._fetching:  # in advance, and in vain
            self._arrive()
        if self.whole is not None:
            self.flat.hide()
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
        self.flat.collect_gradient(self.gradient)
        self._reducing, self.is_reduced = self.gradient, True
        if self.stage > 1:
            self.flat.hide_gradient()
            self.gradient = None
        if self.stage == 3:
            self.free()
        self.communication.reduce(self)

    def hold_sum(self) -> None:
        """Count the copy of the gradient in the type of the parts, in which it is added up, where that is another."""
        self.meter.hold("gradients", self.sum_nbytes)

    def add_up(self) -> None:
        """Add up the gradients; in a thread, with prefetch."""
        assert self._reducing is not None
        gradient = devices.on_host(self._reducing.to(self.shard.dtype))
        part = gradient[self.own]
        run(REDUCE_SCATTER, self.group, gradient.numpy())
        if self.copies and not self.accumulates:
            run(RING, self.copies, part.numpy())
        if self._sums:
            self.shard_gradient.add_(part.to(self.shard_gradient.device))
        else:
            self.shard_gradient.copy_(part)
        self._sums += 1

    def add_up_copies(self) -> None:
        """Add up the sum of all backward passes over the copies, once a step. Collective."""
        assert self.copies
        part = devices.on_host(self.shard_gradient)
        run(RING, self.copies, part.numpy())
        self.shard_gradient.copy_(part)

    def added_up(self) -> None:
        """The sum is there: let go of this rank's own gradient (stages 2 and 3)."""
        self._reducing = None
        self.meter.hold("gradients", -self.sum_nbytes)
        if self.stage > 1:
            self.meter.hold("gradients", -self.nbytes)

    def complete(self) -> None:
        """Have all parameters on this rank, in the type of the parts, to be used without gradients. Collective."""
        if self.dtype != self.shard.dtype:
            self.whole, self.dtype = None, self.shard.dtype
        self.gather()

    def gathered(self, part: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the whole vector, on `device`, of which each rank gives the part that it keeps. Collective."""
        whole = devices.empty_on_host([self.numel], dtype, device)
        whole[self.own] = part.to(whole.device)
        self._all_gather(whole)
        return whole.to(device)

    def _gather(self) -> None:
        self._fetched = self.gathered(self.shard, self.dtype, self.device)

    def _arrive(self) -> None:
        assert self._fetching is not None
        self.communication.wait("all-gather", self._fetching)
        self.whole, self._fetched, self._fetching = self._fetched, None, None

    def _all_gather(self, whole: Tensor) -> None:
        run(ALL_GATHER, self.group, as_numpy(whole))

    def _make_gradient(self) -> None:
        assert self.whole is not None
        self.gradient = torch.zeros_like(self.whole)
        self.meter.hold("gradients", self.nbytes)
        self.flat.show_gradient(self.gradient)


MakeForUnit = Callable[[Unit], SGD]
