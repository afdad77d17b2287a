"""ZeRO: synchronous SGD whose ranks divide the optimizer's state (1), the gradients (2) and the parameters (3, FSDP).

One step, unit by unit (`plan`); every rank computes on its own part of the batch:

    stage                         1                        2                          3
    before a unit's forward       –                        –                          all-gather
    after it                      –                        –                          free
    before its backward           –                        –                          all-gather
    after it                      –                        reduce-scatter, free       reduce-scatter, free both
    after backward                reduce-scatter all       –                          –
    then                          each rank moves its part of all parameters
    at last                       all-gather all           all-gather all             –

The sums and the moves are the same in all stages, so all end with the same bits; and with those of one process on the
whole batch, to rounding.

Cost per step and rank, for n bytes of parameters: 2(N−1)/N·n in stages 1 and 2, as plain data parallel, and half as
much again in stage 3, 3(N−1)/N·n (the root unit is gathered only once). With k micro-batches (`accumulate`) stage 1
adds up the gradients before it reduces. Stages 2 and 3 reduce after each pass, so that no rank holds a whole gradient:
(1+k)(N−1)/N·n and 3k(N−1)/N·n. Memory: `memory`. With prefetch, stage 3
communicates beside the computation (`communication`); in groups, less of it crosses the network (`unit`).

Sources: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020; Zhao et al.,
"PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from farandole.data.batch import Batch
from farandole.data_parallel import accumulation
from farandole.data_parallel.training import Strategy
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.grid import fitting
from farandole.models.muon import of_a_step
from farandole.models.recomputation_options import RecomputationOptions
from farandole.runtime.world import World
from farandole.sharded.activations import Activations, UnitsMeter
from farandole.sharded.communication import Communication
from farandole.sharded.half import compute_in_bfloat16
from farandole.sharded.hooks import Hooks
from farandole.sharded.memory import Meter, account, remembered
from farandole.sharded.norm import shorten
from farandole.sharded.options import Sharding
from farandole.sharded.plan import ROOT, units
from farandole.sharded.stages import Sizes, by_formula
from farandole.sharded.unit import MakeForUnit, Unit
from farandole.tasks import Loss


class ShardedSGD(Strategy):
    """A model whose training state is divided over the ranks. Made by all ranks together.

    Args:
        optimizer: its name, for the formula of its memory.
        options: what is computed again or offloaded; activations are then counted. None: they are not.

    Raises:
        UsageError: the model cannot compute in bfloat16, or `Unit` refuses.
    """

    bytes_are_counted = True
    needs_samples = True  # a rank without any would not know when to gather what

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeForUnit,
        sharding: Sharding,
        optimizer: str,
        options: RecomputationOptions | None = None,
    ) -> None:
        self.world, self.model, self.loss, self.sharding = world, model, loss, sharding
        self._optimizer, self._meter = optimizer, Meter()
        self._memory: dict[str, dict[str, int | None]] | None = None
        self._casts = compute_in_bfloat16(model) if sharding.half else []
        self.communication = Communication(world, sharding.prefetch)
        self.axes = Axes(world.comm, fitting(world.size, {"data": None, "shard": sharding.over or world.size}))
        lines = self.axes.axis("shard"), self.axes.axis("data") if self.axes.grid.data > 1 else None
        self.units = [
            Unit(*lines, planned, sharding, make_optimizer, self._meter, self.communication) for planned in units(model)
        ]
        self.optimizer = Optimizers(self.units)
        self._hooks = Hooks(self.units, sharding.stage)
        self._kept = UnitsMeter(model.parameters(), self._hooks)
        self._kept.active = options is not None
        layers = (
            list(model) if isinstance(model, nn.Sequential) else [unit.module for unit in self.units if unit.module]
        )
        self._activations = Activations(options, model, layers, self._kept) if options else None
        self.at_end: Callable[[], None] | None = None  # called after the last step, while all is divided

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.communication.begin()
            for unit in self.units:
                unit.begin()
                unit.accumulates = self.accumulate > 1
            if self._activations:
                self._activations.begin(batch)
            mean_loss = self.backward(batch, share)
            if self._activations:
                self._activations.complete(batch, self.accumulate)
            self.communication.finish()
            for unit in self.units:
                if unit.copies and unit.accumulates:
                    self.communication.wait("all-reduce", self.communication.put("all-reduce", unit.add_up_copies))
            if self.sharding.max_norm:
                shorten([unit.shard_gradient for unit in self.units], self.sharding.max_norm, self.units[0].group)
        with self.world.compute("update"):
            for unit in self.units:
                unit.optimizer.step()
        for unit in self.units:
            if self.sharding.stage < 3:
                unit.share()
            else:
                unit.free()  # what was gathered in advance, and in vain
        return mean_loss.item()

    def backward(self, batch: Batch, weight: float) -> Tensor:
        """As every strategy's; in stages 2 and 3 each pass leaves the sum over the ranks in this rank's parts."""
        return accumulation.backward(self._forward, batch, weight, self.accumulate, self._around)

    def _forward(self, batch: Batch) -> Tensor:
        with (self._activations or self._kept).watching():
            return self.loss(self.model, batch)

    @contextmanager
    def _around(self, is_last: bool) -> Iterator[None]:
        """Surround a forward and a backward pass: after it no unit has a gradient that waits to be reduced."""
        for unit in self.units:
            unit.expect_another()
            if unit.module is None:
                unit.expect_gradients()
        yield
        for unit in self.units:
            # Left are the root unit, and parameters that this pass had no use for; in stage 1 all, after the last pass.
            if not unit.is_reduced and (is_last or self.sharding.stage > 1):
                unit.reduce()

    def loaded(self) -> None:
        """The parts have been given other values (`sharded.checkpoint`). Collective."""
        if self.sharding.stage < 3:
            for unit in self.units:
                unit.share()

    def finish(self) -> None:
        """Have the whole model on every rank, to be evaluated. Collective."""
        if self.at_end:
            self.at_end()
        self._hooks.remove()
        for cast in self._casts:
            cast.remove()
        self._memory = self._account()
        for unit in self.units:
            unit.complete()
        self.communication.close()
        if self._activations and self._activations.offload:
            self._activations.offload.close()

    def memory(self) -> dict[str, dict[str, int | None]] | None:
        """Return what this rank has held while it trained."""
        return self._memory

    def _account(self) -> dict[str, dict[str, int | None]]:
        root = self.units[0].nbytes if self.units[0].name == ROOT else 0
        its = [(unit, getattr(unit.optimizer, "matrices", ())) for unit in self.units]
        itemsize = self.units[0].shard.itemsize
        state = sum(remembered(self._optimizer, unit.own, matrices) for unit, matrices in its) * itemsize
        parts = sum(unit.shard.nbytes for unit in self.units)
        on_device = self.units[0].shard.device == self.units[0].device
        step = max(of_a_step(matrices, unit.own, unit.numel) for unit, matrices in its) * itemsize if on_device else 0
        widened = itemsize // self.units[0].dtype.itemsize if self.sharding.half else 0
        sizes = Sizes([unit.nbytes for unit in self.units], parts, root, state, step, self.accumulate, widened)
        formula = by_formula(self.sharding, sizes, on_device)
        if self._activations is None:
            return account(self._meter, formula, (None, None))
        found = account(self._meter, formula, (self._kept.most, self._activations.by_formula(self.units[0].dtype)))
        offload = self._activations.offload
        return found | ({"offloaded": offload.account()} if offload else {})


class Optimizers:
    """The optimizers of all units as one, whose learning rate can be changed."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._optimizers = [unit.optimizer for unit in units]

    @property
    def lr(self) -> float:
        """Return the learning rate of all."""
        return self._optimizers[0].lr

    @lr.setter
    def lr(self, lr: float) -> None:
        for each in self._optimizers:
            each.lr = lr
