"""Where a model is cut by time, on a device that computes on after the call that has started it, as a card does."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from farandole.model_parallel import layer_split
from farandole.runtime import devices

LONG_S = 0.01


class Kernel(nn.Linear):
    """A layer whose call returns at once, and whose device is then busy for so many seconds."""

    busy_until: ClassVar[float] = 0.0

    def __init__(self, seconds: float) -> None:
        super().__init__(4, 4)
        self.seconds = seconds

    def forward(self, given: Tensor) -> Tensor:
        Kernel.busy_until = max(time.perf_counter(), Kernel.busy_until) + self.seconds
        return super().forward(given)


def test_the_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []

    def wait(device: torch.device) -> None:
        waited.append(device)
        time.sleep(max(0.0, Kernel.busy_until - time.perf_counter()))

    monkeypatch.setattr(devices, "finish", wait)
    layers = [Kernel(LONG_S), *[Kernel(0.0) for _ in range(3)]]
    plan = layer_split.cut(layers, torch.ones(2, 4), 2, "time")
    assert plan.costs[0] >= LONG_S
    assert plan.bounds == [0, 1, 4], "the first layer takes as long as all others together, and more"
    assert set(waited) == {torch.device("cpu")}
