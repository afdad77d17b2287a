"""Models that are awkward to divide: tied layers, a frozen one, and a buffer that forward changes and no state has."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from farandole import Task
from tests.tasks.waves import SEEN, TEST, TRAIN, absolute, waves

WIDTH = 16


class Awkward(nn.Module):
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(SEEN, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.layers[2].weight = self.layers[1].weight
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.out = nn.Linear(WIDTH, 1)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        x = self.frozen(torch.tanh(self.into(x)))
        for layer in self.layers:
            x = torch.tanh(layer(x))
        found: Tensor = self.out(x)
        return found


def awkward() -> Task:
    return Task(
        Awkward,
        waves(TRAIN, 0),
        waves(TEST, 1),
        criterion=mse_loss,
        metrics={
            "error": absolute,
            "steps": lambda model, batch: float(model.steps),
            "parameters": lambda model, batch: float(len(list(model.parameters()))),
        },
    )


def with_statistics() -> Task:
    normalised = nn.Sequential(nn.Linear(SEEN, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1))
    return Task(lambda: normalised, waves(TRAIN, 0), waves(TEST, 1), criterion=mse_loss, metrics={"error": absolute})
