"""How good a model is: the share of samples that it gets right, counted by one process or by all ranks.

Sharded evaluation (分布式评估): every rank judges its share of the test samples, and the counts are added up.

    accuracy = Σ_r (right answers of rank r) / number of answers

Counts, and no means: shares differ in size, and a mean of their means would weigh the samples of a small one more. The
quotient is the same to the last bit on however many ranks.

Cost: N/P samples each, and one all-reduce of two numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from farandole.data import shards
from farandole.data.datasets import Dataset
from farandole.data.shares import equal_shares
from farandole.runtime.world import World
from farandole.tasks import Loss, Metric, correct_predictions

BATCH = 512  # samples


def right_answers(
    model: nn.Module, dataset: Dataset, device: torch.device, metric: Metric = correct_predictions
) -> int:
    """Return the metric summed over `dataset`: how often `model` is right about an image or a character."""
    right, training = 0, model.training
    model.eval()  # no dropout, and BatchNorm's running statistics
    for start in range(0, len(dataset), BATCH):
        part = dataset[slice(start, start + BATCH)]
        with torch.no_grad():
            outputs = model(torch.from_numpy(part.inputs).to(device))
            right += metric(outputs, torch.from_numpy(part.targets).to(device))
    model.train(training)
    return right


def accuracy(model: nn.Module, dataset: Dataset, device: torch.device, metric: Metric = correct_predictions) -> float:
    """Return the share of `dataset` that `model` gets right, 0 to 1: of the images, or of all next characters."""
    return right_answers(model, dataset, device, metric) / dataset.targets.size


def loss(model: nn.Module, dataset: Dataset, device: torch.device, of_part: Loss) -> float:
    """Return the mean loss of `model` over `dataset`; for text, over all next characters.

    Args:
        of_part: (outputs, targets) → the mean loss of a part.
    """
    total, training = 0.0, model.training
    model.eval()
    for start in range(0, len(dataset), BATCH):
        part = dataset[slice(start, start + BATCH)]
        with torch.no_grad():
            outputs = model(torch.from_numpy(part.inputs).to(device))
            total += of_part(outputs, torch.from_numpy(part.targets).to(device)).item() * part.targets.size
    model.train(training)
    return total / dataset.targets.size


def sharded_accuracy(
    model: nn.Module, dataset: Dataset | None, world: World, metric: Metric = correct_predictions
) -> float:
    """Return the same, computed by all ranks, each of which has this model. Collective.

    Args:
        dataset: on rank 0; each rank gets its share of it.
    """
    count = np.array([len(dataset) if dataset else 0])
    world.control.Bcast(count)
    share = shards.scatter(dataset, equal_shares(int(count[0]), world.size), world.comm)
    counts = np.array([right_answers(model, share, world.device, metric), share.targets.size])
    with world.comm.waiting("evaluation", -1):
        world.control.Allreduce(MPI.IN_PLACE, counts)
    right, answers = counts.tolist()
    return float(right / answers)
