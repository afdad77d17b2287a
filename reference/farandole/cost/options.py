"""The options of measuring the cost of synchronising."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.models.options import TrainingOptions
from farandole.runtime.numbers import AtLeastOne, Part, Positive, whole

# Those of `cost.ways`.
Way = Literal["ring", "central", "overlapped", "large-batch", "local-sgd", "float16", "top-k", "gossip"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SyncCostOptions(TrainingOptions):
    """Which ways are measured, and how."""

    steps: AtLeastOne = 96
    """Batches that each way trains with; a multiple of --period."""

    ways: Annotated[tuple[Way, ...], Parameter(consume_multiple=True, negative="")] = (
        "ring", "central", "overlapped", "large-batch", "local-sgd", "float16", "top-k", "gossip",
    )  # fmt: skip
    """Which ways of synchronising are predicted and measured."""

    period: AtLeastOne = 8
    """Of local-sgd: steps from one average to the next; of large-batch: how many times as large the batches are."""

    fraction: Part = 0.01
    """Of top-k: the part of the entries that is sent in a step."""

    bucket_kb: AtLeastOne = 64
    """Of overlapped: what is reduced at once."""

    rehearsal: Annotated[int, whole(gte=5)] = 24
    """Steps of each way without a network, from which its computing times are taken."""

    goal: Positive = 0.5
    """The training loss to which steps and seconds are counted."""

    scale: Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="")] = (8, 64, 512)
    """Numbers of workers for which the speed is predicted too."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps * len(self.ways)  # one way after the other


def check(options: SyncCostOptions) -> None:
    """
    Raises:
        UsageError: the options do not go together.
    """
    if options.steps % options.period:
        raise UsageError(
            f"--steps {options.steps} is no multiple of --period {options.period}: give "
            f"{max(1, round(options.steps / options.period)) * options.period}"
        )
    if len(set(options.ways)) < len(options.ways):
        raise UsageError("--ways names one twice: give each once")
    if not options.ways:
        raise UsageError("--ways names none: give at least one")
