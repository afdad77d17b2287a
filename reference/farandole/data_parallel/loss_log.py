"""The ranks' losses, added up a window of steps at a time, as lines of metrics.jsonl.

No method needs the loss of the whole batch, so it is not exchanged at every step.
"""

from __future__ import annotations

import numpy as np

from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

LOSS_WINDOW = 10  # steps between two exchanges


class LossLog:
    """Every rank adds its part of each step's loss.

    Args:
        steps: of the whole training; after the last one nothing is held back.

    Attributes:
        last: the loss of the last step that has been written, over all ranks.
    """

    def __init__(self, world: World, recorder: Recorder, steps: int) -> None:
        self.world, self.recorder, self.steps = world, recorder, steps
        self.window: list[tuple[int, float, float, int]] = []  # step, weighted loss, wall clock, samples
        self.last = 0.0

    def add(self, step: int, weighted_loss: float, samples: int) -> None:
        """Note a step. Collective, and every so often an exchange.

        Args:
            weighted_loss: this rank's mean loss times its share of the batch.
            samples: of the whole batch.
        """
        self.window.append((step, weighted_loss, self.recorder.elapsed_s, samples))
        if len(self.window) == LOSS_WINDOW or step + 1 == self.steps:
            self.flush()

    def flush(self) -> None:
        """Write what is held back. Collective."""
        if not self.window:
            return
        losses = np.array([loss for _, loss, _, _ in self.window])
        with self.world.comm.waiting("sum of losses", -1):
            summed = np.empty_like(losses)
            self.world.control.Allreduce(losses, summed)
        for loss, (step, _, wall_s, samples) in zip(summed, self.window, strict=True):
            self.recorder.log(step=step, wall_s=wall_s, loss=float(loss), samples=samples)
        self.last = float(summed[-1])
        self.window.clear()
