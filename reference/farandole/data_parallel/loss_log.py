"""The ranks' losses, added up a window of steps at a time, as lines of metrics.jsonl.

No method needs the loss of the whole batch, so it is not exchanged at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

LOSS_WINDOW = 10  # steps between two exchanges


@dataclass(frozen=True)
class Noted:
    """One rank's part of a step's loss: its mean loss times its share of the batch, and that share."""

    weighted_loss: float
    share: float
    wall_s: float
    samples: int


class LossLog:
    """Every rank adds its part of each step's loss.

    Args:
        steps: of the whole training; after the last one nothing is held back.
        first: the first step of this start.

    Attributes:
        following: the first step that has not been written.
        last: the loss of the last step that has been written, over all ranks.
        last_mean: over the steps of the last exchange; the same on all ranks.
    """

    def __init__(self, world: World, recorder: Recorder, steps: int, first: int = 0) -> None:
        self.world, self.recorder, self.steps = world, recorder, steps
        self.following = first
        self.last = self.last_mean = 0.0
        self._noted: dict[int, Noted] = {}

    def add(self, step: int, loss: float, share: float, samples: int) -> None:
        """Note a step. Collective, and every so often an exchange.

        Args:
            loss: mean over this rank's part of the batch.
            share: that part's share of the whole batch, 0 to 1.
            samples: of the whole batch.
        """
        self._noted[step] = Noted(loss * share, share, self.recorder.elapsed_s, samples)
        following = step + 1
        if following % LOSS_WINDOW == 0 or following == self.steps:
            self.flush(following)

    def flush(self, following: int) -> None:
        """Write what is held back of the steps before `following`. Collective.

        Ranks that were not there in a step, or have died since, are missing from the mean.
        """
        steps = range(self.following, following)
        if not steps:
            return
        nothing = Noted(0.0, 0.0, 0.0, 0)
        noted = [self._noted.get(step, nothing) for step in steps]
        parts = np.array([(each.weighted_loss, each.share) for each in noted])
        with self.world.comm.waiting("sum of losses", -1):
            summed = np.empty_like(parts)
            self.world.control.Allreduce(parts, summed)
            # Whoever writes may have come later than the step.
            own = np.array([(each.wall_s, each.samples) for each in noted])
            seen = np.empty_like(own)
            self.world.control.Allreduce(own, seen, MPI.MAX)
        for step, (loss, share), (wall_s, samples) in zip(steps, summed, seen, strict=True):
            if share:
                self.last = float(loss / share)
                self.recorder.log(step=step, wall_s=float(wall_s), loss=self.last, samples=int(samples))
        if known := summed[:, 1].sum():
            self.last_mean = float(summed[:, 0].sum() / known)
        self.following = following
        # Who writes may have died in this exchange without having written: what it was about is kept until the next.
        for step in [step for step in self._noted if step < steps.start]:
            del self._noted[step]

    def go_on_from(self, step: int, written: int) -> None:
        """The next step is `step`, and those before `written` have been written, after a change of the ranks."""
        self.following = min(step, written)
        self._noted = {number: noted for number, noted in self._noted.items() if number < step}
