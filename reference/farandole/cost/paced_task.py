"""A training whose computing takes a given time for each sample, for runs that are compared with a simulation.

    forward of a layer        rows · SAMPLE_S / (3 · LAYERS)        slept, after the layer's own arithmetic
    backward of a layer       twice that

Sleeping ranks need no core, so the number of cores does not decide the times; and a step is long relative to what a
machine takes for its arithmetic and for Python. The model is trained all the same, on random vectors.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farandole.tasks import Task

LAYERS = 4
PIECES = 8  # layers of the model that pipelines divide
SAMPLE_S = 60e-3 / 12
ROWS = 1536
NARROW, WIDE = 40, 80
DEEP_LAYERS, DEEP_NARROW, DEEP_WIDE = 16, 62, 124  # a wide layer has 62.0 kB
DEEP_SAMPLE_S = 192e-3 / 12


def nbytes(width: int, layers: int = LAYERS) -> int:
    """Return the bytes of the parameters."""
    return 4 * layers * width * (width + 1)


def narrow() -> Task:
    """Return a task of 26 kB of parameters."""
    return _task(NARROW, LAYERS, SAMPLE_S)


def wide() -> Task:
    """Return a task of 104 kB of parameters."""
    return _task(WIDE, LAYERS, SAMPLE_S)


def pieces() -> Task:
    """Return a task of eight layers that do not sleep, since a pipeline's passes have a pace already."""
    return _task(NARROW, PIECES, 0.0)


def deep_narrow() -> Task:
    """Return a task of 16 layers, of 250 kB of parameters."""
    return _task(DEEP_NARROW, DEEP_LAYERS, DEEP_SAMPLE_S)


def deep_wide() -> Task:
    """Return a task of 16 layers, of 992 kB of parameters."""
    return _task(DEEP_WIDE, DEEP_LAYERS, DEEP_SAMPLE_S)


def _task(width: int, layers: int, sample_s: float) -> Task:
    inputs = np.random.default_rng(0).normal(size=(ROWS, width)).astype(np.float32)
    targets = np.arange(ROWS) % width
    return Task(
        model=lambda: nn.Sequential(*(_Paced(width, sample_s / (3 * layers)) for _ in range(layers))),
        train=(inputs, targets),
        test=(inputs[:4], targets[:4]),
        name="a paced task",
    )


class _Paced(nn.Module):
    """A linear layer that takes at least a given time for each row."""

    def __init__(self, width: int, row_s: float) -> None:
        super().__init__()
        self.linear, self.row_s = nn.Linear(width, width), row_s

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs)
        if self.row_s:
            outputs = _Sleep.apply(outputs, self.row_s * len(inputs))  # type: ignore[no-untyped-call]
        return outputs


class _Sleep(torch.autograd.Function):
    """The identity, which sleeps for `seconds` forward and twice as long backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds)
        return gradients[0], None
