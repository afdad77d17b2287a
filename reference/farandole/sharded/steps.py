"""The work of a rank in a step of ZeRO, in order: the computations and the collectives of each unit.

    stage 1    forward, backward of all units; reduce all; gather all
    stage 2    forward of all units; backward and reduce, last unit first; gather all
    stage 3    gather and forward, first unit first; gather, backward and reduce, last unit first

With several micro-batches the passes are repeated; what stands behind the passes is done once. Torch's hooks produce
this order in a training (`hooks`); here it is written down, to be counted and simulated (`cost.sharding`).

    halves     gather: a ring all-gather; reduce: a ring reduce-scatter. Each sends (N−1)/N of a unit's bytes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gather", "forward", "backward", "reduce"]


@dataclass(frozen=True)
class Step:
    """One unit's computation, or one collective of its ranks."""

    kind: Kind
    unit: int


def steps(stage: int, units: int, accumulate: int = 1) -> Iterator[Step]:
    """Yield the steps of a stage, 1 to 3, for a model without a root unit.

    Args:
        units: their number.
        accumulate: micro-batches.
    """
    order = range(units)
    for _ in range(accumulate):
        for unit in order:
            if stage == 3:
                yield Step("gather", unit)
            yield Step("forward", unit)
        for unit in reversed(order):
            if stage == 3:
                yield Step("gather", unit)
            yield Step("backward", unit)
            if stage > 1:
                yield Step("reduce", unit)
    if stage == 1:
        yield from (Step("reduce", unit) for unit in order)
    if stage < 3:
        yield from (Step("gather", unit) for unit in order)


def halves(stage: int, accumulate: int = 1) -> int:
    """Return how many halves of an all-reduce of all parameters a step sends: 2 in stages 1 and 2, 3 in stage 3."""
    kinds = Counter(step.kind for step in steps(stage, 1, accumulate))
    return kinds["gather"] + kinds["reduce"]
