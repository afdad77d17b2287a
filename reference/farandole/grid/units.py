"""The parameters that a rank of the grid trains: its layers, in units that shard ranks divide (`sharded.unit`).

With one shard rank every unit is whole, its gradients are added up over all micro-batches, and then over the ranks with
the same parameters. With several, a unit is gathered for each pass and each micro-batch, and its gradient is added to
this rank's part at once (ZeRO-3).
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from farandole.grid.options import GridOptions
from farandole.model_parallel.axes import Axes
from farandole.model_parallel.expert.model import mixtures
from farandole.models.optimizers import maker
from farandole.runtime.world import World
from farandole.sharded.activations import UnitsMeter
from farandole.sharded.communication import Communication
from farandole.sharded.hooks import Hooks
from farandole.sharded.memory import Meter
from farandole.sharded.optimizers import on_parts
from farandole.sharded.options import Sharding
from farandole.sharded.plan import Planned, units
from farandole.sharded.unit import Unit

COPIES = ("data", "expert", "context")  # the axes along which ranks have the same parameters …
COPIES_OF_EXPERTS = ("data", "context")  # … and the same experts


class Units:
    """The units of this rank's layers. Made by all ranks together.

    Attributes:
        sharding: what shard ranks divide.
        memory: bytes of parameters, gradients and optimizer state.
        meter: bytes that wait for a backward pass.
    """

    def __init__(self, world: World, axes: Axes, module: nn.Module, options: GridOptions) -> None:
        self.world, self.sharding, self.memory = world, Sharding(stage=3 if axes.grid.shard > 1 else 1), Meter()
        self.communication = Communication(world, prefetch=False, group=axes.named("data", "shard", "context"))
        make = on_parts(maker(options.optimizer, options.lr))
        experts = {id(expert) for mixture in mixtures(module) for expert in mixture.experts}
        group, copies, of_experts = axes.axis("shard"), axes.along(*COPIES), axes.along(*COPIES_OF_EXPERTS)

        def unit(planned: Planned) -> Unit:
            line = of_experts if id(planned.module) in experts else copies
            others = line if line.size > 1 else None
            return Unit(group, others, planned, self.sharding, make, self.memory, self.communication, accumulates=True)

        self._units = [unit(planned) for planned in units(module)]
        self.hooks = Hooks(self._units, self.sharding.stage, passes_overlap=True)
        self.meter = UnitsMeter(module.parameters(), self.hooks)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units)

    def begin(self) -> None:
        """A step begins."""
        self.communication.begin()
        for unit in self:
            unit.begin()

    def update(self) -> None:
        """Move this rank's parts, by the gradients of all micro-batches. Collective.

        With one shard rank a unit's part is the whole; with several it has been reduced, and is gathered when used.
        """
        for unit in self:
            if unit.copies:
                self.communication.put("all-reduce", unit.add_up_copies)
        with self.world.compute("update"):
            for unit in self:
                unit.optimizer.step()
        self.meter.active = False  # every step holds as much as the first

    def complete(self) -> None:
        """Have all parameters of this rank's layers whole, and no more hooks. Collective."""
        self.hooks.remove()
        for unit in self:
            unit.complete()
