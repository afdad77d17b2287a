"""The ranks' losses, added up a window of steps at a time, as lines of metrics.jsonl.

No method needs the loss of the whole batch, so it is not exchanged at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

LOSS_WINDOW = 10  # steps between two exchanges

AllReduce = Callable[..., None]  # (own, result, MPI's operation)
Observation = Callable[[AllReduce], Mapping[str, float]]  # what all ranks together observe, after the fact


@dataclass(frozen=True)
class Noted:
    """One rank's part of a step's loss: its mean loss times its share of the batch, and that share."""

    weighted_loss: float
    share: float
    wall_s: float
    samples: int
    also: Mapping[str, float] = field(default_factory=dict)


def over_all_ranks(own: Sequence[Noted], all_reduce: AllReduce) -> list[Noted]:
    """Return these steps with the parts of all ranks added up, and the largest time and sample count of any rank."""
    parts = np.array([(each.weighted_loss, each.share) for each in own])
    summed = np.empty_like(parts)
    all_reduce(parts, summed, MPI.SUM)
    # The writing rank may have joined after the step.
    known = np.array([(each.wall_s, each.samples) for each in own])
    latest = np.empty_like(known)
    all_reduce(known, latest, MPI.MAX)
    return [
        Noted(float(loss), float(share), float(wall_s), int(samples), each.also)
        for (loss, share), (wall_s, samples), each in zip(summed, latest, own, strict=True)
    ]


class LossLog:
    """Every rank adds its part of each step's loss.

    Args:
        steps: of the whole training; after the last one nothing is held back.
        first: the first step of this start.
        observe: called at each exchange; returns what the line of its last step contains in addition, or None.
        window: steps between two exchanges.

    Attributes:
        following: the first step that has not been written.
        last: the loss of the last step that has been written, over all ranks.
        last_mean: over the steps of the last exchange's window, as far as they have been exchanged since the ranks
            last changed; the same on all ranks.
    """

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        steps: int,
        first: int = 0,
        observe: Callable[[], Observation | None] = lambda: None,
        window: int = LOSS_WINDOW,
    ) -> None:
        self.world, self.recorder, self.steps, self.observe, self.window = world, recorder, steps, observe, window
        self.following = first
        self._held_back = 2 * window  # steps at most: the writing rank may die in an exchange
        self.last = self.last_mean = 0.0
        self._noted: dict[int, Noted] = {}
        self._window = np.zeros((window, 2))  # of all ranks: weighted loss and share of each of its steps

    def add(self, step: int, loss: float, share: float, samples: int, **also: float) -> None:
        """Note a step. Collective, and every so often an exchange.

        Args:
            loss: mean over this rank's part of the batch.
            share: that part's share of the whole batch, 0 to 1.
            samples: of the whole batch.
            also: what else its line is to say, the same on all ranks.
        """
        if share:
            self.recorder.watch(step, loss)
        self._noted[step] = Noted(loss * share, share, self.recorder.elapsed_s, samples, also)
        following = step + 1
        if following % self.window == 0 or following == self.steps:
            self.flush(following)

    def flush(self, following: int) -> None:
        """Write the steps before `following` that are held back. Collective.

        Ranks that took no part in a step, or have died since, are missing from its mean.
        """
        steps = range(self.following, following)
        if not steps:
            return
        with self.world.comm.waiting("sum of losses", -1):
            self._exchange(steps, self._own(steps), self.observe(), self.world.comm.mpi.Allreduce)
        self.following = following
        self._forget(steps.start)

    def _own(self, steps: range) -> list[Noted]:
        """Return this rank's part of these steps; nothing for steps before it joined."""
        nothing = Noted(0.0, 0.0, 0.0, 0)
        return [self._noted.get(step, nothing) for step in steps]

    def _exchange(
        self, steps: range, own: Sequence[Noted], observation: Observation | None, all_reduce: AllReduce
    ) -> None:
        """Write a line for each step, from all ranks' parts."""
        noted = over_all_ranks(own, all_reduce)
        observed = observation(all_reduce) if observation else {}
        for step, each in zip(steps, noted, strict=True):
            if step % self.window == 0:
                self._window.fill(0)
            self._window[step % self.window] = each.weighted_loss, each.share
            if each.share:
                self.last = each.weighted_loss / each.share
                values = {"wall_s": each.wall_s, "loss": self.last, "samples": each.samples}
                self.recorder.log(step=step, **values, **each.also, **(observed if step == steps[-1] else {}))
        weighted_loss, share = self._window.sum(axis=0)
        if share:
            self.last_mean = float(weighted_loss / share)

    def _forget(self, before: int) -> None:
        """Forget the steps before `before`. Later ones are kept: the writing rank may have died in the exchange."""
        for step in [step for step in self._noted if step < before]:
            del self._noted[step]

    def finish(self) -> None:
        """Return when all lines are written: here they are. Collective."""

    def own_parts(self, following: int) -> NDArray[np.float64]:
        """This rank's parts of the steps before `following` of which not all need have been written, a row for each."""
        own = self._own(range(following - self._held_back, following))
        return np.array([(each.weighted_loss, each.share, each.wall_s, each.samples) for each in own])

    def adopt(self, following: int, parts: Sequence[NDArray[np.float64]]) -> None:
        """Take over these parts (`own_parts`) of the steps before `following`, perhaps those of several ranks.

        What else a step's line is to say stays known only to a rank that has noted it.
        """
        also = {step: noted.also for step, noted in self._noted.items()}
        self._noted.clear()
        for step, *rows in zip(range(following - self._held_back, following), *parts, strict=True) if parts else ():
            losses, shares, walls_s, samples = np.transpose(rows)
            if samples.any():
                own = losses.sum(), shares.sum(), walls_s.max(), int(samples.max())
                self._noted[step] = Noted(*own, also.get(step, {}))

    def go_on_from(self, step: int, written: int) -> None:
        """Continue at `step` after a change of the ranks; the steps before `written` have been written."""
        self._window.fill(0)  # a rank that has just joined knows nothing of it
        self.following = min(step, written)
        self._noted = {number: noted for number, noted in self._noted.items() if number < step}
