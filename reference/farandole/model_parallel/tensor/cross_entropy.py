"""Cross-entropy of logits that are divided by class: no rank ever has a whole row.

A row's loss is log Σ exp(logit) − the target's logit. Three numbers say all that a rank knows about
it: its largest logit m_r, the sum s_r = Σ exp(logit − m_r) over its classes, and the target's logit,
or 0 where another rank has it. With the three of all ranks

    m = max m_r,   s = Σ s_r·exp(m_r − m),   loss = log s + m − Σ target's logit

and no exponent is above 0, so that nothing overflows. Backward needs no message: the gradient
(softmax − one-hot)/rows of a rank's logits takes only m, s and the target.

Cost: one all-gather, in which a rank sends 3(P−1) numbers per row, instead of a row of logits. The
paper's three all-reduces (largest, sum, target) would send 6(P−1)/P numbers, in 6(P−1) messages
instead of P − 1. Source: Shoeybi et al., "Megatron-LM", 2019; sums relative to a largest element
that is not yet known: Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from farandole.data.shares import slices
from farandole.model_parallel.tensor.exchange import TensorGroup, apply


def cross_entropy(logits: Tensor, targets: Tensor, classes: int, group: TensorGroup) -> Tensor:
    """The mean loss over all rows, the same bits on every rank; 0, with zero gradients, without rows. Collective.

    Args:
        logits: (…, share), this rank's share of the classes, as a split head leaves them.
        targets: (…), each row's class among all, the same on all ranks.
        classes: how many there are.
    """
    own = slices(group.shares(classes, "classes"))[group.rank]
    if logits.shape[-1] != own.stop - own.start:
        raise ValueError(
            f"logits of {logits.shape[-1]} classes: rank {group.rank} has classes {own.start} to {own.stop - 1}"
        )
    if len(targets) and not 0 <= targets.amin() <= targets.amax() < classes:
        raise IndexError(f"targets from {targets.amin()} to {targets.amax()}: there are {classes} classes")
    return apply(_CrossEntropy, logits.flatten(0, -2), targets.flatten(), own.start, group)


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, first: int, group: TensorGroup) -> Tensor:
        columns = targets - first
        here = (columns >= 0) & (columns < logits.shape[1])
        columns = columns.masked_fill(~here, 0).unsqueeze(1)
        largest = logits.amax(dim=1)
        exponentials = (logits - largest.unsqueeze(1)).exp()
        wanted = logits.gather(1, columns).squeeze(1).masked_fill(~here, 0)

        known = torch.stack((largest, exponentials.sum(dim=1), wanted))
        everybodys = group.gather(known, shares=[3] * group.size, dimension=0).unflatten(0, (group.size, 3))
        all_largest, all_sums, all_wanted = everybodys.unbind(dim=1)
        maximum = all_largest.amax(dim=0)
        total = (all_sums * (all_largest - maximum).exp()).sum(dim=0)
        losses: Tensor = total.log() + (maximum - all_wanted.sum(dim=0))

        softmax = exponentials * ((largest - maximum).exp() / total).unsqueeze(1)
        ctx.save_for_backward(softmax, columns, here)
        return losses.sum() / max(1, len(losses))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, columns, here = ctx.saved_tensors
        one_hot = here.to(softmax.dtype).unsqueeze(1)
        per_row = softmax.scatter_add(1, columns, -one_hot)
        return per_row * (gradient / max(1, len(per_row))), None, None, None
