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
another message, and the copies stay alike. bfloat16 has float32's range and fewer digits: it needs no scale.

Cost: per parameter 4 bytes and 2, and 2 for a gradient in 16 bits; one pass over the gradient to see whether it is
finite. Source: Micikevicius et al., "Mixed precision training", 2018.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from farandole.collectives.executor import AllReduce
from farandole.data_parallel.loss_scale import LossScale
from farandole.data_parallel.training import Strategy, mean_cross_entropy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World

KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class MixedPrecisionSGD(Strategy):
    """A model trained in step with its copies on all other ranks, computing in 16 bits.

    Args:
        model: in float32; it becomes the master copy.
        precision: "float16", with a scale of the loss, or "bfloat16", without.
        scale: to begin with; None: a new one.

    Attributes:
        half: the copy that computes.
        scale: of the loss; None for bfloat16.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        precision: str,
        scale: LossScale | None = None,
        bytes_are_counted: bool = True,
    ) -> None:
        self.world = world
        self.model = model
        self.all_reduce = all_reduce
        self.scale = (scale or LossScale()) if precision == "float16" else None
        self.bytes_are_counted = bytes_are_counted
        self.kind = KINDS[precision]
        self.half = copy.deepcopy(model).to(self.kind)
        self.master = FlatBuffers(model)
        self.optimizer = make_optimizer(self.master.values, self.master.gradients)
        self._pairs = list(zip(self.half.parameters(), model.parameters(), strict=True))

    def step(self, inputs: Tensor, targets: Tensor, share: float) -> float:
        scale = self.scale.value if self.scale else 1.0
        with self.world.compute("forward and backward"):
            for half, master in self._pairs:
                half.data.copy_(master.data)
                half.grad = None
            outputs = self.half(inputs.to(self.kind) if inputs.is_floating_point() else inputs)
            mean_loss = mean_cross_entropy(outputs.float(), targets)
            (mean_loss * scale).backward()
            for half, master in self._pairs:
                _gradient(master).copy_(_gradient(half))
            self.master.gradients.mul_(share / scale)

        with self.world.communicate("all-reduce"):
            self.master.to_host()
            self.all_reduce(self.world.comm, self.master.gradients_np)
            self.master.from_host()

        with self.world.compute("update"):
            finite = bool(self.master.gradients.isfinite().all())
            if self.scale:
                self.scale.observe(finite)
            if finite:
                self.optimizer.step()
        return mean_loss.item()


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
