"""Gradient accumulation (梯度累积): a rank computes its part of a batch in k micro-batches, one after the other.

    for micro-batch i of k    g_r ← g_r + (n_i / n)·∇ mean loss of micro-batch i        n_i of the part's n samples
    then                      the method continues with g_r, as if the part had been computed at once

Autograd keeps the activations of one micro-batch instead of those of the whole part, so a batch that does not fit into
a device's memory is trained as one that does. Only the last backward pass is followed by communication: the first k−1
are local (`no_sync` in torch's DistributedDataParallel), and a step sends as many bytes as without.

The gradient is that of the undivided part, to rounding, where the mean loss is a mean over samples. It is another one
where samples of a batch see each other: BatchNorm normalises by the mean and variance of a micro-batch, as it does by
those of a rank's part. Dropout draws other masks, as it does for another order of the samples.

Cost: activations / k; k passes of which each has the fixed cost of starting the kernels. In `sharded` a pass also
communicates. Sources: Ott et al., "Scaling neural machine translation", 2018, who reduce once in 16 passes; Li et al.,
"PyTorch distributed", 2020, section 3.2.4 (no_sync).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor

from farandole.data import batch as batches
from farandole.data.batch import Batch
from farandole.data.sampler import batch_size, steps_per_epoch
from farandole.errors import UsageError


def micro_batches(batch: Batch, count: int) -> Iterator[tuple[Batch, float]]:
    """Yield `count` parts of a batch, whose sizes differ by one sample at most, and each one's share of the samples.

    Of fewer samples it yields one each: a mean over none is no number.
    """
    samples = batches.size(batch)
    count = max(1, min(count, samples))
    for number in range(count):
        place = slice(samples * number // count, samples * (number + 1) // count)
        share = (place.stop - place.start) / samples if samples else 1.0
        yield (batch if count == 1 else batches.mapped(lambda part: part[place], batch)), share  # noqa: B023


def backward(
    loss: Callable[[Batch], Tensor],
    batch: Batch,
    weight: float,
    count: int = 1,
    around: Callable[[bool], AbstractContextManager[None]] = lambda is_last: nullcontext(),
) -> Tensor:
    """Add `weight` times the gradient of the mean loss over a batch to the gradients; return the mean loss, detached.

    Args:
        loss: batch → its mean loss.
        count: micro-batches, each with a forward and a backward pass.
        around: surrounds each pass; it is given whether this is the last.
    """
    mean = None
    parts = list(micro_batches(batch, count))
    for number, (part, share) in enumerate(parts, 1):
        with around(number == len(parts)):
            mean_loss = loss(part)
            (mean_loss * (weight * share)).backward()
        own = mean_loss.detach() * share
        mean = own if mean is None else mean + own
    assert mean is not None
    return mean


def check_micro_batches(shares: list[int], batch: int, steps: int, count: int) -> None:
    """Refuse more micro-batches than samples: in some step a rank would have an empty one.

    Args:
        shares: samples of each rank.
        batch, steps: of the training, as `data.sampler.check_filled` has them.

    Raises:
        UsageError: saying what would fit.
    """
    epoch = steps_per_epoch(sum(shares), batch)
    least = batch_size(min(shares), epoch, min(steps, epoch) - 1)  # larger parts come first
    if 1 < count > least:
        raise UsageError(
            f"--accumulate {count}: in some steps a rank's part of the batch has {least} samples, and each micro-batch "
            f"needs one: give {max(least, 1)} or less, or a larger --batch"
        )
