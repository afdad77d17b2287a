"""Features of real models: statistics, several types of numbers, another layout in memory, losses that are NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
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


NAN_IN = TRAIN - 3  # of the last worker's share; not in its first batch


def with_a_nan() -> Task:
    """One sample has no target: the loss of the rank that reads it is NaN at that step."""
    x, y = waves(TRAIN, 0)
    y[NAN_IN] = np.nan
    return Task(lambda: layers(nn.Identity).float(), (x, y), waves(TEST, 1), criterion=mse_loss)


FEW = 5


def few() -> Task:
    """Few samples, so that in some steps a rank has none; the user's own loss is not called then."""
    (x, y), test = waves(FEW, 0), waves(TEST, 1)
    return Task(lambda: layers(nn.Identity).float(), (x, y), test, loss=few_loss, metrics={"error": absolute})


def few_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    assert len(batch[0])
    return mse_loss(model(batch[0]), batch[1])


def double() -> Task:
    return _task(lambda: layers(nn.Identity))


def brain() -> Task:
    """Parameters of bfloat16, which numpy does not have."""
    return _task(lambda: Converting(layers(nn.Identity).bfloat16()), waves)


class Converting(nn.Module):
    """A model whose inputs and outputs are of another type than its parameters."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, seen: Tensor) -> Tensor:
        answer: Tensor = self.inner(seen.to(next(self.inner.parameters()).dtype))
        return answer.to(seen.dtype)


class Mixed(nn.Module):
    """Parameters of two types, and a buffer of integers that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SEEN, 16), nn.Linear(16, 1).double()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, seen: Tensor) -> Tensor:
        if self.training:
            self.seen += len(seen)
        answer: Tensor = self.second(torch.tanh(self.first(seen)).double())
        return answer.to(seen.dtype)


def mixed() -> Task:
    return _task(Mixed, waves)


class Transposed(nn.Module):
    """Parameters that are not contiguous: a transposed one, a frozen one of integers, and a counter of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, SEEN, dtype=torch.float64).t() / SEEN)
        self.last = nn.Linear(16, 1).double()
        self.table = nn.Parameter(torch.arange(3), requires_grad=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, seen: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        answer: Tensor = self.last(torch.tanh(seen @ self.weight)) * self.table[1]
        return answer


def transposed() -> Task:
    return _task(Transposed)
