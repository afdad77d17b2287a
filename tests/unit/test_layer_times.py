"""Where a model is cut by time, on a device that computes asynchronously, as a card does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from farandole.model_parallel import layer_split
from farandole.runtime import devices

CALL_S, LONG_S = 0.001, 0.01


class Device:
    """A device and the host's clock: a call takes the host a millisecond, and the device the layer's time."""

    def __init__(self) -> None:
        self.now = self.busy_until = 0.0
        self.waited_for: set[torch.device] = set()

    def launch(self, seconds: float) -> None:
        self.now += CALL_S
        self.busy_until = max(self.now, self.busy_until) + seconds

    def finish(self, device: torch.device) -> None:
        self.waited_for.add(device)
        self.now = max(self.now, self.busy_until)


class Kernel(nn.Linear):
    """A layer whose call returns at once, and keeps the device busy."""

    def __init__(self, device: Device, seconds: float) -> None:
        super().__init__(4, 4)
        self.device, self.seconds = device, seconds

    def forward(self, given: Tensor) -> Tensor:
        self.device.launch(self.seconds)
        return super().forward(given)


def test_the_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(devices, "finish", device.finish)
    monkeypatch.setattr(layer_split.time, "perf_counter", lambda: device.now)
    layers = [Kernel(device, LONG_S), *[Kernel(device, 0.0) for _ in range(3)]]
    plan = layer_split.cut(layers, torch.ones(2, 4), 2, "time")
    assert plan.costs == pytest.approx([CALL_S + LONG_S, CALL_S, CALL_S, CALL_S])
    assert plan.bounds == [0, 1, 4], "the first layer takes as long as all others together, and more"
    assert device.waited_for == {torch.device("cpu")}
