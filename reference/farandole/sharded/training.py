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
much again in stage 3, 3(N−1)/N·n (the root unit is gathered only once). Memory: `memory`. With prefetch, stage 3
communicates beside the computation (`communication`); in groups, less of it crosses the network (`unit`).

Autograd would keep each unit's whole vector from forward to backward, since a layer's backward needs its weights. What
autograd saves of it is therefore replaced by its place in the unit, and looked up when backward asks for it.

Sources: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020; Zhao et al.,
"PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.runtime.world import World
from farandole.sharded.communication import Communication
from farandole.sharded.half import compute_in_bfloat16
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
    ) -> None:
        self.world, self.model, self.loss, self.sharding = world, model, loss, sharding
        self._optimizer, self._meter = optimizer, Meter()
        self._memory: dict[str, dict[str, int | None]] | None = None
        self._hooks = compute_in_bfloat16(model) if sharding.half else []
        self.communication = Communication(world, sharding.prefetch)
        self.units = [
            Unit(world, planned, sharding, make_optimizer, self._meter, self.communication) for planned in units(model)
        ]
        self.optimizer = Optimizers(self.units)
        self._hooks += [hook for unit in self.units for hook in self._hooked(unit)]
        self.at_end: Callable[[], None] | None = None  # called after the last step, while all is divided

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.communication.begin()
            for unit in self.units:
                unit.begin()
                if unit.module is None:
                    unit.expect_gradients()
            with torch.autograd.graph.saved_tensors_hooks(self._packed, _unpacked):
                mean_loss = self.loss(self.model, batch)
            (mean_loss * share).backward()
            for unit in self.units:
                if not unit.is_reduced:  # stage 1, the root unit, or a parameter that this step had no use for
                    unit.reduce()
            self.communication.finish()
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

    def loaded(self) -> None:
        """The parts have been given other values (`sharded.checkpoint`). Collective."""
        if self.sharding.stage < 3:
            for unit in self.units:
                unit.share()

    def finish(self) -> None:
        """Have the whole model on every rank, to be evaluated. Collective."""
        if self.at_end:
            self.at_end()
        for hook in self._hooks:
            hook.remove()
        self._memory = self._account()
        for unit in self.units:
            unit.complete()
        self.communication.close()

    def memory(self) -> dict[str, dict[str, int | None]] | None:
        """Return what this rank has held while it trained."""
        return self._memory

    def _account(self) -> dict[str, dict[str, int | None]]:
        root = self.units[0].nbytes if self.units[0].name == ROOT else 0
        state = sum(
            remembered(self._optimizer, unit.own, getattr(unit.optimizer, "matrices", ())) * unit.shard.itemsize
            for unit in self.units
        )
        parts = sum(unit.shard.nbytes for unit in self.units)
        sizes = Sizes([unit.nbytes for unit in self.units], parts, root, state)
        on_device = self.units[0].shard.device == self.units[0].device
        return account(self._meter, by_formula(self.sharding, sizes, on_device))

    def _hooked(self, unit: Unit) -> list[Any]:
        """Have `unit` gathered, freed and reduced when its time comes; return the hooks' handles."""
        hooks: list[Any] = []
        if unit.module is not None and self.sharding.stage == 3:
            hooks.append(unit.module.register_forward_pre_hook(lambda *_: unit.gather()))
        if unit.module is not None and self.sharding.stage > 1:
            hooks.append(unit.module.register_forward_hook(partial(self._after_forward, unit)))
            ready = partial(self._gradient_is_there, unit)
            hooks += [each.register_post_accumulate_grad_hook(ready) for each in unit.parameters]
        return hooks

    def _after_forward(self, unit: Unit, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        for each in _tensors(outputs):
            if each.requires_grad:
                each.register_hook(lambda _: unit.expect_gradients())
        if self.sharding.stage == 3:
            unit.free()

    def _gradient_is_there(self, unit: Unit, _: Tensor) -> None:
        unit.missing -= 1
        if not unit.missing:
            unit.reduce()

    def _packed(self, tensor: Tensor) -> Tensor | Place:
        if self.sharding.stage == 3:
            start = tensor.untyped_storage().data_ptr()
            for unit in self.units:
                if unit.whole is not None and unit.whole.untyped_storage().data_ptr() == start:
                    return Place(unit, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        return tensor


@dataclass(frozen=True)
class Place:
    """Where a tensor that autograd has saved lies in a unit's whole vector."""

    unit: Unit
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        """Return what lies there; the unit is gathered for it if it is not."""
        self.unit.gather()
        assert self.unit.whole is not None
        return self.unit.whole.as_strided(self.shape, self.stride, self.offset)


class Optimizers:
    """The optimizers of all units as one, whose learning rate can be changed."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._optimizers = [unit.optimizer for unit in units]

    @property
    def lr(self) -> float:
        """The learning rate of all."""
        return self._optimizers[0].lr

    @lr.setter
    def lr(self, lr: float) -> None:
        for each in self._optimizers:
            each.lr = lr


def _unpacked(saved: Tensor | Place) -> Tensor:
    return saved.tensor() if isinstance(saved, Place) else saved


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in what a module has returned: one, or a tuple, list, dict or object with a dict's methods."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, list | tuple):
        return [each for part in outputs for each in _tensors(part)]
    if isinstance(outputs, dict):
        return [each for part in outputs.values() for each in _tensors(part)]
    return []
