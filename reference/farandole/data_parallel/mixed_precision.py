"""Mixed precision (混合精度训练): compute in 16 bits, remember in 32.

    master        float32 parameters: all updates happen here
    half          a copy in 16 bits, in which forward and backward compute: half the memory, twice as fast or more on
                  hardware made for it

    half ← master
    (scale · loss) backward in 16 bits
    gradient ← half gradient / scale, in float32
    all-reduce of the gradient
    if it is finite: master ← the optimizer's step, else nothing

The copy in 32 bits is needed because an update may be too small for 16: in float16 1 + 2⁻¹² is 1. An infinite
gradient on one rank is infinite, or no number, in the sum on all ranks; so all leave out the same step without
another message, and the copies stay alike. bfloat16 has float32's range and fewer digits: it needs no scale. Layers for
which 16 bits are too few may stay in 32 (`float32_layers`).

Cost: per parameter 4 bytes and 2, and 2 for a gradient in 16 bits; one pass over the gradient to see whether it is
finite. Source: Micikevicius et al., "Mixed precision training", 2018.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from farandole.collectives.executor import AllReduce
from farandole.data import batch as batches
from farandole.data.batch import Batch
from farandole.data_parallel.accumulation import micro_batches
from farandole.data_parallel.float32_layers import keep_in_float32
from farandole.data_parallel.loss_scale import LossScale
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers, trained
from farandole.runtime.communicator import Buffer
from farandole.runtime.world import World
from farandole.tasks import Loss

KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class HalfCopy:
    """A copy in 16 bits, which computes the gradients of a model that is kept in 32.

    Args:
        model: in float32.
        loss: (model, batch) → its mean loss; of the copy it sees outputs in float32.
        master: the model's buffers.
        precision: "float16", with a scale of the loss, or "bfloat16", without.
        scale: to begin with; None: a new one.
        float32_layers: the layers of the copy that stay in float32 (`float32_layers.keep_in_float32`).

    Attributes:
        module: the copy.
        scale: of the loss; None for bfloat16.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        master: FlatBuffers,
        precision: str,
        scale: LossScale | None = None,
        float32_layers: Sequence[str] = (),
    ) -> None:
        self.loss, self.master = loss, master
        self.scale = (scale or LossScale()) if precision == "float16" else None
        self.kind = KINDS[precision]
        self.module = copy.deepcopy(model).to(self.kind)
        if float32_layers:
            keep_in_float32(self.module, float32_layers)
        self.module.register_forward_pre_hook(self._to_half, with_kwargs=True)
        self.module.register_forward_hook(lambda module, inputs, outputs: _converted(outputs, torch.float32))
        self._statistics = list(zip(self.module.buffers(), model.buffers(), strict=True))
        self._pairs = list(zip(trained(self.module), trained(model), strict=True))

    def gradient(self, batch: Batch, share: float, accumulate: int = 1) -> Tensor:
        """Put the gradient of a part of the batch, times its share, into the master's; returns the part's mean loss.

        The gradients of several micro-batches are added up in 32 bits: in 16 a small one would be lost in the sum.
        """
        scale = self.scale.value if self.scale else 1.0
        self.master.zero_gradients()
        for half, master in self._pairs:
            half.data.copy_(master.data)
            half.grad = None
        losses = []
        for part, of_part in micro_batches(batch, accumulate):
            mean_loss = self.loss(self.module, part)
            (mean_loss * scale).backward()
            for half, master in self._pairs:
                _add_gradient(half, master, of_part)
            losses.append(mean_loss.detach() * of_part)
        for own, its in self._statistics:  # BatchNorm's, which are evaluated with the master
            its.copy_(own)
        self.master.gradients.mul_(share / scale)
        return torch.stack(losses).sum()

    def adopt_statistics(self) -> None:
        """Continue with the master's buffers, which have been restored."""
        for own, its in self._statistics:
            own.copy_(its)

    def _to_half(self, module: nn.Module, inputs: Any, named: Any) -> tuple[Any, Any]:
        return _converted(inputs, self.kind), _converted(named, self.kind)

    def nbytes(self) -> int:
        """Return the bytes of the copy's parameters."""
        return sum(each.nbytes for each in self.module.parameters())

    def accept(self) -> bool:
        """The master's gradient is the sum of all ranks' now: whether to take the step. The scale follows."""
        finite = bool(self.master.gradients.isfinite().all())
        if self.scale:
            self.scale.observe(finite)
        return finite


class MixedPrecisionSGD(Strategy):
    """A model trained in step with its copies on all other ranks, computing in 16 bits.

    Args:
        model: in float32; it becomes the master copy.
        loss, precision, scale, float32_layers: as of `HalfCopy`.
        gradients: memory for the gradient, where it is to lie in a certain place.

    Attributes:
        half: the copy that computes.
        scale: of the loss; None for bfloat16.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        precision: str,
        scale: LossScale | None = None,
        bytes_are_counted: bool = True,
        gradients: Buffer | None = None,
        float32_layers: Sequence[str] = (),
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.bytes_are_counted = bytes_are_counted
        self.master = FlatBuffers(model, gradients, direct=world.transport == "direct")
        self.half = HalfCopy(model, loss, self.master, precision, scale, float32_layers)
        self.scale = self.half.scale
        self.optimizer = make_optimizer(self.master.values, self.master.gradients)

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            mean_loss = self.half.gradient(batch, share, self.accumulate)

        with self.world.communicate("all-reduce"):
            self.master.to_host()
            self.all_reduce(self.world.comm, self.master.on_wire)
            self.master.from_host()

        with self.world.compute("update"):
            if self.half.accept():
                self.optimizer.step()
        return mean_loss.item()


def _converted(values: Any, kind: torch.dtype) -> Any:
    """Return what goes into a model, or comes out of it, with its floating-point tensors in another type."""
    return batches.mapped(
        lambda value: value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value, values
    )


def _add_gradient(half: nn.Parameter, master: nn.Parameter, weight: float) -> None:
    """Move the copy's gradient to the master's; the loss may not depend on the parameter."""
    assert master.grad is not None
    if half.grad is not None:
        master.grad.add_(half.grad, alpha=weight)
        half.grad = None
