"""The work of a round, the same for everyone whom `farandole bench pipeline` measures.

A transformer with two blocks for each rank reads the same batch of real text in every round: forward
and backward in micro-batches, then one step of plain SGD. All start from the same parameters and are
cut at the same layers, so the loss of each round is known from any of them: `compare` refuses a
system whose losses are not the others'. The ranks compare them first in a round that is not timed.
A system that does not do the work is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn

from farandole.data import datasets
from farandole.errors import LaunchError
from farandole.model_parallel.options import LayerOptions
from farandole.models import choices

# Our schedule → the class of torch.distributed.pipelining that has the same order.
SCHEDULES = {
    "1f1b": "Schedule1F1B",
    "gpipe": "ScheduleGPipe",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero-bubble": "ScheduleInterleavedZeroBubble",
}
LAYER_SPLIT = "layer split"
COMPUTING = "computing alone"  # the passes of 1F1B, without messages
SAME_LOSS = 1e-3  # relative: sums in another order, over some updates in float32


@dataclass(frozen=True)
class Task:
    """The size of the work.

    Attributes:
        hidden: width of the transformer.
        depth: its blocks.
        batch: samples of 64 characters.
        micro_batches: into how many equal parts the batch is cut.
    """

    hidden: int
    depth: int
    batch: int
    micro_batches: int

    @classmethod
    def for_ranks(cls, ranks: int, samples: int) -> Task:
        """For each rank two blocks, which interleaving takes as two pieces, and two micro-batches of `samples`."""
        return cls(hidden=128, depth=2 * ranks, batch=2 * ranks * samples, micro_batches=2 * ranks)

    @classmethod
    def from_arguments(cls, words: Sequence[str]) -> Task:
        return cls(*map(int, words))

    def to_arguments(self) -> list[str]:
        return [str(value) for value in astuple(self)]

    def options(self) -> LayerOptions:
        """The same as options of a scenario."""
        return LayerOptions(
            data="pydoc",
            model="transformer",
            hidden=self.hidden,
            depth=self.depth,
            batch=self.batch,
            lr=0.05,
            balance="memory",  # known from the shapes alone, so that all cut at the same layers
            device="cpu",
            wait_timeout=30.0,
        )

    def model(self) -> nn.Sequential:
        """Return the whole model, with the same parameters on whichever rank builds it."""
        torch.manual_seed(0)
        return choices.build(self.options())

    def text(self) -> tuple[Tensor, Tensor]:
        """Return the batch: characters and the characters that follow, int64, (batch, context) each."""
        samples = datasets.split(datasets.load("pydoc"), seed=0).train[: self.batch]
        return torch.from_numpy(samples.inputs), torch.from_numpy(samples.targets)

    def parameter_bytes(self) -> int:
        """Memory of the whole model's parameters."""
        with torch.device("meta"):
            return sum(parameter.nbytes for parameter in choices.build(self.options()).parameters())


@dataclass(frozen=True)
class Measured:
    """The measurements of a system's rounds.

    Attributes:
        bounds: where the model was cut, as in `Plan`.
        seconds: of each round, from a common start to the last rank's end.
        losses: of each round, the whole batch's mean.
    """

    bounds: list[int]
    seconds: list[float]
    losses: list[float]


def check_losses(when: str, losses: Mapping[str, float]) -> None:
    """Check that every system has the first one's loss.

    Raises:
        LaunchError: naming the system, and `when`.
    """
    (reference, expected), *others = losses.items()
    for system, loss in others:
        if not math.isclose(loss, expected, rel_tol=SAME_LOSS):
            raise LaunchError(f"{when}: the loss of {system} is {loss}, that of {reference} {expected}")


def compare(found: dict[str, Measured]) -> None:
    """Check that every system had the first one's loss in every round, that it fell, and that equal cuts are equal.

    Raises:
        LaunchError: naming the system.
    """
    (reference, first), *others = found.items()
    if not first.losses[-1] < first.losses[0]:
        raise LaunchError(f"{reference} does not learn: its loss went from {first.losses[0]} to {first.losses[-1]}")
    bounds = {len(first.bounds): first.bounds}
    for number in range(len(first.losses)):
        check_losses(f"round {number}", {name: its.losses[number] for name, its in found.items()})
    for system, its in others:
        if its.bounds != (usual := bounds.setdefault(len(its.bounds), its.bounds)):
            raise LaunchError(f"{system} is cut at {its.bounds}, others at {usual}")
