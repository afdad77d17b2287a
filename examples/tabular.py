"""A perceptron on a table: how far diabetes has progressed in a year, from ten measurements (sklearn, 442 patients).

    farandole run sync_sgd -n 4 --task examples/tabular.py --lr 0.1

Regression, with a criterion of outputs and targets, and layers that a pipeline can cut.
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import mse_loss

from farandole import Task

TEST = 88  # patients


def error(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return each patient's error, in standard deviations of the progression."""
    measurements, progression = batch
    return torch.abs(model(measurements) - progression)


def task() -> Task:
    measurements, progression = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(0).permutation(len(progression))
    table = np.column_stack([measurements, progression])[order]
    table = ((table - table[:-TEST].mean(axis=0)) / table[:-TEST].std(axis=0)).astype(np.float32)
    x, y = table[:, :-1].copy(), table[:, -1:].copy()
    return Task(
        model=lambda: nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)),
        train=(x[:-TEST], y[:-TEST]),
        test=(x[-TEST:], y[-TEST:]),
        criterion=mse_loss,
        metrics={"error": error},
        name="diabetes",
    )
