"""The work of a method around the batches of a user's loop.

The loop is the user's, so a method acts where the user calls: as an optimizer takes its step, between two batches, when
a loss is logged, and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import nn

from farandole.data_parallel.loss_log import LossLog, Observation
from farandole.errors import UsageError
from farandole.runtime.options import RunOptions
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

ENDLESS = 2**62  # steps, of a training whose end is not known


class LoopMethod:
    """One rank's part in a method.

    Attributes:
        name: as of the scenario by this method.
        Options: the options of the method.
        model: what is trained, once the loop shares it.
        passes_on: whether a worker's samples may become another worker's.
        model: what is trained, once the loop knows it.
        recorder, losses: of the run, from `begin` on.
    """

    name: ClassVar[str]
    Options: ClassVar[type[RunOptions]] = RunOptions
    passes_on: ClassVar[bool] = False

    def __init__(self, world: World, options: Any) -> None:
        self.world, self.options = world, options
        self.model: nn.Module | None = None
        self._span: AbstractContextManager[None] | None = None

    def begin(self) -> None:
        """Begin the record. Collective."""
        self.recorder = Recorder(self.world, self.scenario, self.options)
        self.losses = LossLog(self.world, self.recorder, ENDLESS, observe=self.observe)

    @property
    def scenario(self) -> str:
        """Return the name in the record."""
        return f"own_loop-{self.name}"

    @property
    def slot(self) -> tuple[int, int]:
        """Return which of the workers this rank is, and their number."""
        return self.world.comm.rank, self.world.comm.size

    @property
    def trains(self) -> bool:
        """Whether this rank is one of the workers."""
        return True

    def optimizer(self, inner: torch.optim.Optimizer, **settings: Any) -> torch.optim.Optimizer:
        """Return what the user's loop is to call in place of `inner`.

        Args:
            settings: those of `OwnLoop.optimizer`.

        Raises:
            UsageError: a setting that the method does not have.
        """
        raise NotImplementedError

    def weigh(self, share: float) -> None:
        """Note this rank's part of the batch that begins, as a share of the whole."""

    def steps(self, first: int, count: int) -> Iterator[int]:
        """Yield the number of each step that this rank is to take; between two of them the ranks may communicate."""
        if not first:
            self.recorder.start()
        for step in range(first, first + count):
            yield step
            self.computing(None)
            self.after(step)

    def after(self, step: int) -> None:
        """Do what follows the user's work on a batch. Collective."""

    def log(self, step: int, loss: float, share: float, samples: int, also: dict[str, float]) -> None:
        """Note this rank's part of a step's loss. Collective."""
        self.losses.add(step, loss, share, samples, **also)

    def observe(self) -> Observation | None:
        """Return what the record is to contain beside the loss, or None."""
        return None

    def keep(self, objects: Sequence[Any]) -> None:
        """Keep what these objects remember, if the method keeps anything."""

    def finish(self, following: int) -> dict[str, Any] | None:
        """Make the model the trained one, and write the lines that are left. Collective.

        Args:
            following: the step after the last.

        Returns:
            Entries of the record; None on a rank that had no part in the training.
        """
        return self.written(following)

    def written(self, following: int) -> dict[str, Any]:
        """Write the lines that are left, and stop the clock; return entries of the record. Collective."""
        self.losses.flush(following)
        self.losses.finish()
        self.recorder.stop()
        return {"final_loss": self.losses.last if following and self.losses.following else None}

    def together(self, call: Callable[[], None]) -> bool:
        """Make a collective call; return False if it failed, so that the step does not count."""
        call()
        return True

    def secure(self) -> None:
        """Return when parameters may change. Collective."""

    def computing(self, what: str | None) -> None:
        """End the present span of computation in the trace, and begin another one."""
        if self._span:
            self._span.__exit__(None, None, None)
        self._span = self.world.compute(what) if what else None
        if self._span:
            self._span.__enter__()


def refuse(settings: dict[str, Any], why: str) -> None:
    """Refuse settings of an optimizer that say nothing to the method.

    Raises:
        UsageError: one of them was given.
    """
    if given := [name for name, value in settings.items() if value is not None]:
        raise UsageError(f"{given[0]}= says nothing here: {why}; leave it out")


def trainable(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the optimizer's parameters that are trained.

    Raises:
        UsageError: there is none.
    """
    found = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
    if not found:
        raise UsageError("the optimizer has no parameter to train: set requires_grad=True for at least one")
    return found
