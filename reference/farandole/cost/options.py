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
    """Number of batches that each method trains on; a multiple of --period."""

    methods: Annotated[tuple[Method, ...], Parameter(consume_multiple=True, negative="")] = tuple(METHODS)
    """The methods of synchronising that are predicted and measured."""

    period: AtLeastOne = 8
    """local-sgd: steps from one average to the next; large-batch: the factor by which the batches are larger."""

    fraction: Part = 0.01
    """top-k: the part of the entries that is sent in a step."""

    bucket_kb: AtLeastOne = 64
    """overlapped: size of a bucket, which is reduced as a whole."""

    calibration_steps: Annotated[int, whole(gte=5)] = 24
    """Number of steps of each method without a network, in which its computing times are measured."""

    goal: Positive = 0.5
    """The training loss to reach; steps and seconds are counted until then."""

    scale: Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="")] = (8, 64, 512)
    """Numbers of workers for which the speed is predicted as well."""

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
