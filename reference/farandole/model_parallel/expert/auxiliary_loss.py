"""A loss that arises in the middle of a pipeline, as the balancing loss does in every block.

The loss of the task is computed by the last stage, and a stage before it knows no more than the gradient of its
outputs. So the other loss is tied to a tensor on the way: forward passes the tensor through, and backward, which comes
to it with the tensor's gradient, gives the loss its own, which is its weight. The sum of all losses is then minimised
though no rank ever computes it. Cost: nothing is sent.

The same in Megatron Core: `MoEAuxLossAutoScaler`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from farandole.model_parallel.tensor.exchange import apply


def with_auxiliary_loss(x: Tensor, loss: Tensor, weight: float) -> Tensor:
    """Return `x`, whose backward pass goes through `loss`, too.

    Args:
        loss: one number, shape ().
        weight: of the loss in the sum that is minimised.
    """
    return apply(_WithAuxiliaryLoss, x, loss, weight)


class _WithAuxiliaryLoss(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, gradient.new_full((), ctx.weight), None
