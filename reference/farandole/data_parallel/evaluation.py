"""The evaluation of a model: means of a task's metrics over the test samples, by one process or by all ranks.

Sharded evaluation (分布式评估): every rank judges its share of the test samples, and the sums are added up.

    metric = Σ_r (sum over rank r's answers) / number of answers

Sums, and no means: shares differ in size, and a mean of their means would weigh the samples of a small one more. Of
right answers, which are counted, the quotient is the same to the last bit on however many ranks.

Cost: N/P samples each, and one all-reduce of two numbers per metric.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, nn

from farandole.data import batch as batches
from farandole.data import shards
from farandole.data.read_ahead import ahead
from farandole.data.samples import Samples
from farandole.data.shares import equal_shares
from farandole.errors import UsageError
from farandole.runtime.buffers import mean_statistics
from farandole.runtime.world import World
from farandole.tasks import Metric, Task, is_right

BATCH = 512  # samples


def judged(model: nn.Module, samples: Samples, device: torch.device, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return each metric's mean over `samples`; of no samples nan."""
    return _means(_sums(model, samples, device, metrics), metrics)


def judged_together(model: nn.Module, samples: Samples | None, world: World, task: Task) -> dict[str, float]:
    """Return the same, computed by all ranks, each of which has this model. Collective.

    Args:
        samples: on rank 0, if it sends each rank its share of them; else on all ranks.
    """
    count = np.array([len(samples) if samples is not None else 0])
    world.control.Bcast(count)
    share = shards.share_out(samples, equal_shares(int(count[0]), world.size), world.comm, task.is_sent)
    return judged_in_shares(model, share, world, task.metrics)


def judged_in_shares(model: nn.Module, share: Samples, world: World, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return each metric's mean over the shares of all ranks, each of which has this model. Collective."""
    sums = _sums(model, share, world.device, metrics)
    with world.comm.waiting("evaluation", -1):
        world.control.Allreduce(MPI.IN_PLACE, sums)
    return _means(sums, metrics)


def mean_of_statistics(model: nn.Module, world: World, trains: bool = True) -> None:
    """Set floating-point buffers, as BatchNorm's statistics, to their mean over the ranks that train. Collective.

    Args:
        trains: whether this rank does.
    """
    if not any(each.is_floating_point() for each in model.buffers()):
        return

    def over_those_that_train(sums: NDArray[np.float64]) -> None:
        sums *= trains
        with world.comm.waiting("mean of statistics", -1):
            world.control.Allreduce(MPI.IN_PLACE, sums)

    count = np.ones(1)
    over_those_that_train(count)
    mean_statistics(model, over_those_that_train, max(1, int(count[0])))


def accuracy(model: nn.Module, samples: Samples, device: torch.device) -> float:
    """Return the share of `samples` that `model` gets right, 0 to 1: of the images, or of all next characters."""
    return judged(model, samples, device, {"accuracy": is_right})["accuracy"]


def _sums(
    model: nn.Module, samples: Samples, device: torch.device, metrics: Mapping[str, Metric]
) -> NDArray[np.float64]:
    """Return for each metric the sum over all answers, and their number: shape (metrics, 2)."""
    sums, training = np.zeros((len(metrics), 2)), model.training
    parts = [np.arange(start, min(start + BATCH, len(samples))) for start in range(0, len(samples), BATCH)]
    reader = ahead(samples.on(device), iter(parts), 0)
    model.eval()  # no dropout, and BatchNorm's running statistics
    with torch.no_grad():
        for rows in parts:
            batch = reader[rows]
            for number, (name, metric) in enumerate(metrics.items()):
                sums[number] += _sum_and_count(name, metric(model, batch), batches.size(batch))
    model.train(training)
    return sums


def _sum_and_count(name: str, value: Tensor | float, samples: int) -> tuple[float, int]:
    if isinstance(value, Tensor) and value.dim():
        return float(value.double().sum()), value.numel()
    try:
        return float(value) * samples, samples
    except (TypeError, ValueError):
        raise UsageError(
            f"the task's metric {name!r} must be a number or a tensor, and is {type(value).__name__}"
        ) from None


def _means(sums: NDArray[np.float64], metrics: Mapping[str, Metric]) -> dict[str, float]:
    with np.errstate(invalid="ignore"):
        return dict(zip(metrics, (sums[:, 0] / sums[:, 1]).tolist(), strict=True))
