"""The sine wave of `waves`, but one rank's process stops before a step, as with a SIGSTOP from outside."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import count

from torch import Tensor, nn

from farandole import Task
from tests.tasks import waves

RANK = "FARANDOLE_TEST_FROZEN"  # names the rank in the environment
STEP = 5
_steps = count()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    if next(_steps) == STEP and os.environ["OMPI_COMM_WORLD_RANK"] == os.environ.get(RANK):
        os.kill(os.getpid(), signal.SIGSTOP)
    return waves.loss(model, batch)


def task() -> Task:
    return replace(waves.task(), loss=loss)
