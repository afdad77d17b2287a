"""The options of measuring the cost of synchronising."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from cyclopts import Parameter

from farandole.cost.methods import METHODS
from farandole.errors import UsageError
from farandole.models.options import TrainingOptions
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, Part, Positive, whole

if TYPE_CHECKING:  # mypy cannot read a table
    Method = str
else:
    Method = one_of(METHODS)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SyncCostOptions(TrainingOptions):
    """Which methods are measured, and how."""

    renamed: ClassVar[Mapping[str, str]] = {"ways": "methods", "rehearsal": "calibration_steps"}

    steps: AtLeastOne = 96
    """Batches that each method trains with; a multiple of --period."""

    methods: Annotated[tuple[Method, ...], Parameter(consume_multiple=True, negative="")] = tuple(METHODS)
    """Which methods of synchronising are predicted and measured."""

    period: AtLeastOne = 8
    """Of local-sgd: steps from one average to the next; of large-batch: how many times as large the batches are."""

    fraction: Part = 0.01
    """Of top-k: the part of the entries that is sent in a step."""

    bucket_kb: AtLeastOne = 64
    """Of overlapped: what is reduced at once."""

    calibration_steps: Annotated[int, whole(gte=5)] = 24
    """Steps of each method without a network, from which its computing times are taken."""

    goal: Positive = 0.5
    """The training loss to which steps and seconds are counted."""

    scale: Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="")] = (8, 64, 512)
    """Numbers of workers for which the speed is predicted too."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps * len(self.methods)  # one after the other


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
    if len(set(options.methods)) < len(options.methods):
        raise UsageError("--methods names one twice: give each once")
    if not options.methods:
        raise UsageError("--methods names none: give at least one")
