"""A task for the small transformer: to repeat the letter before."""

from __future__ import annotations

import numpy as np

from farandole import Task
from farandole.models.transformer import transformer
from farandole.tasks import mean_cross_entropy

LETTERS, CONTEXT, SAMPLES, WIDTH = 12, 6, 24, 64


def task() -> Task:
    x = np.random.default_rng(1).integers(LETTERS, size=(SAMPLES, CONTEXT))
    y = np.roll(x, 1, axis=1)
    return Task(
        lambda: transformer((CONTEXT,), LETTERS, hidden=WIDTH, depth=2),
        train=(x, y),
        test=(x, y),
        criterion=mean_cross_entropy,
        classes=LETTERS,
    )
