"""Tasks as a user would write them: to continue a sine wave, from batches of several forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import Dataset

from farandole import Task

SEEN, TRAIN, TEST = 12, 120, 30


def waves(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the visible part of each wave, and how it continues."""
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, (count, 1))
    heights = np.sin(phases + 0.4 * np.arange(SEEN + 1)).astype(np.float32)
    return heights[:, :-1], heights[:, -1:]


class Recurrent(nn.Module):
    """A model with a named argument, and its own loss as a method."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, seen: Tensor, scale: float = 1.0) -> Tensor:
        outputs, _ = self.gru(seen)
        answer: Tensor = self.head(outputs[:, -1]) * scale
        return answer


def named(count: int, seed: int) -> dict[str, np.ndarray]:
    seen, following = waves(count, seed)
    return {"seen": seen[:, :, None].copy(), "following": following}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return mse_loss(model(seen=batch["seen"], scale=1.0), batch["following"])


def error(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return torch.abs(model(batch["seen"]) - batch["following"])


def task() -> Task:
    """A recurrent model, batches as dicts of tensors, its own loss, two metrics."""
    metrics = {"error": error, "squared": lambda model, batch: loss(model, batch).item()}
    return Task(model=Recurrent, train=named(TRAIN, 0), test=named(TEST, 1), loss=loss, metrics=metrics)


def in_micro_batches() -> Task:
    """`task` with a loss that uses at most a sixth of the samples."""

    def in_few_samples(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        assert len(batch["seen"]) <= TRAIN / 6
        return loss(model, batch)

    return replace(task(), loss=in_few_samples)


class Listed(Dataset[tuple[Tensor, Tensor]]):
    """A Dataset that records which samples were requested."""

    def __init__(self, count: int, seed: int) -> None:
        self.seen, self.following = map(torch.from_numpy, waves(count, seed))
        self.asked: set[int] = set()

    def __len__(self) -> int:
        return len(self.seen)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        self.asked.add(number)
        return self.seen[number], self.following[number]


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(SEEN, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def absolute(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    seen, following = batch
    return torch.abs(model(seen) - following)


def pairs() -> Task:
    """A sequence of layers, samples one by one, a criterion of outputs and targets."""
    return Task(
        model=layers, train=Listed(TRAIN, 0), test=Listed(TEST, 1), criterion=mse_loss, metrics={"error": absolute}
    )


def without_metric() -> Task:
    """Plain tensors, and the loss as the only metric."""
    train, test = (tuple(map(torch.from_numpy, waves(*which))) for which in ((TRAIN, 0), (TEST, 1)))
    return Task(model=layers, train=train, test=test, criterion=mse_loss)


def searched() -> Task:
    """With samples to choose by."""
    return Task(model=Recurrent, train=named(TRAIN, 0), test=named(TEST, 1), validation=named(TEST, 2), loss=loss)


# Mistakes of users.


def not_a_task() -> Any:
    return {"model": Recurrent}


def fails() -> Task:
    raise ZeroDivisionError("nothing to divide by")


def vector_loss() -> Task:
    return Task(
        model=Recurrent,
        train=named(TRAIN, 0),
        test=named(TEST, 1),
        loss=lambda model, batch: (model(batch["seen"]) - batch["following"]).abs(),
    )


def text_samples() -> Task:
    return Task(model=Recurrent, train="waves.csv", test=named(TEST, 1), loss=loss)


def unequal() -> Task:
    seen, following = waves(TRAIN, 0)
    return Task(model=layers, train=(seen, following[:-1]), test=waves(TEST, 1), criterion=mse_loss)


def both() -> Task:
    return Task(model=layers, train=waves(TRAIN, 0), test=waves(TEST, 1), criterion=mse_loss, loss=loss)


def no_module() -> Task:
    return Task(model=lambda: waves, train=waves(TRAIN, 0), test=waves(TEST, 1), criterion=mse_loss)  # type: ignore[arg-type, return-value]


def few() -> Task:
    return Task(model=layers, train=waves(3, 0), test=waves(TEST, 1), criterion=mse_loss)


def strange_metric() -> Task:
    return Task(
        model=layers,
        train=waves(TRAIN, 0),
        test=waves(TEST, 1),
        criterion=mse_loss,
        metrics={"answer": lambda model, batch: "good"},  # type: ignore[dict-item]
    )
