"""What real models have: statistics, several types of numbers, another layout in memory, losses that are NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn
from torch.nn.functional import mse_loss

from farandole import Task
from tests.tasks.waves import SEEN, TEST, TRAIN, absolute, waves


def doubled(count: int, seed: int) -> tuple[np.ndarray, ...]:
    return tuple(each.astype(np.float64) for each in waves(count, seed))


def _task(model: Any, arrays: Any = doubled, **more: Any) -> Task:
    more = {"criterion": mse_loss} | more
    samples = {"train": arrays(TRAIN, 0), "test": arrays(TEST, 1), "validation": arrays(TEST, 2)}
    return Task(model=model, metrics={"error": absolute}, **samples | more)


def layers(norm: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(SEEN, 16), norm(16), nn.Tanh(), nn.Linear(16, 1)).double()


def normalised() -> Task:
    return _task(lambda: layers(nn.BatchNorm1d))


def normalised_together() -> Task:
    return _task(lambda: layers(nn.SyncBatchNorm))


def normalised_in_float32() -> Task:
    return _task(lambda: layers(nn.BatchNorm1d).float(), waves)
