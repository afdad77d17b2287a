"""A task of your own: a model, its data, what it is trained by and judged by. Replace each part by yours.

    farandole run sync_sgd -n 4 --task THIS_FILE
    farandole compare sync_sgd local_sgd ssp -n 5 --task THIS_FILE

Every rank calls `task` once. It opens the data here, and reads only the samples of its own share.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole import Task


def model() -> nn.Module:
    """Return a new model: any module. An nn.Sequential can be cut into the stages of a pipeline as well."""
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and their heights: arrays with a row for each sample.

    They may be memory-mapped (np.load, mmap_mode="r"). A dict of arrays, or a Dataset of torch, does as well.
    """
    x = np.random.default_rng(seed).uniform(-2, 2, (count, 2)).astype(np.float32)
    return x, np.sin(x[:, :1] * x[:, 1:])


def error(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return a value for each sample; the record has their mean over the test samples."""
    x, y = batch
    return torch.abs(model(x) - y)


def task() -> Task:
    """Return the task.

    The criterion is a function of outputs and targets, for batches (x, y). For any other form of batch give instead
    loss=, a function of the model and the batch.
    """
    return Task(model=model, train=samples(4000, 0), test=samples(500, 1), criterion=mse_loss, metrics={"error": error})
