"""ZeRO at many workers: the steps of `sharded.steps` in simulated time, with the collectives beside or between them.

A unit's forward pass takes 1/3U of the computing of a step, its backward pass 2/3U. All units have n/U bytes. Without
prefetch everything is done one after the other. With it one thread does the collectives, as in `sharded.communication`:

    gather     begun when the gather before it is complete, if that is another unit's; the pass waits until it is there
    reduce     begun when the reduce before it is complete; waited for at the end of the step

Every collective is one of all workers, so they go at the pace of the slowest. Cost: O(units) for each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER
from farandole.cost.messages import collective_s
from farandole.cost.rounds import simulated as in_rounds
from farandole.cost.setting import Outcome, Setting
from farandole.sharded.steps import Step, steps

PARTS = {"forward": 1 / 3, "backward": 2 / 3}  # of the computing of a step
COLLECTIVES = {"gather": ALL_GATHER, "reduce": REDUCE_SCATTER}


@dataclass(frozen=True)
class Span:
    """When a rank takes a step: seconds since the training's step began."""

    step: Step
    begin: float
    end: float


def timeline(order: Sequence[Step], seconds: dict[str, float], prefetch: bool) -> Iterator[Span]:
    """Yield when each step is taken; with prefetch, the collectives beside the computations.

    Args:
        order: the steps, as of `sharded.steps.steps`.
        seconds: "forward", "backward", "gather", "reduce" → of one unit.
    """
    gathers = [step for step in order if step.kind == "gather"]
    now = free = reduced = 0.0  # the computation, the thread, the last sum
    there: float | None = None  # when the unit that is gathered in advance will be there

    def in_the_thread(step: Step) -> Span:
        begin = max(now, free)
        return Span(step, begin, begin + seconds[step.kind])

    for step in order:
        if step.kind in PARTS or not prefetch:
            span = Span(step, now, now + seconds[step.kind])
            now = span.end
            yield span
        elif step.kind == "gather":
            if there is None:
                span = in_the_thread(step)
                free = there = span.end
                yield span
            now, there = max(now, there), None
            gathers.pop(0)
            if gathers and gathers[0].unit != step.unit:  # one that is still there need not, and cannot, be gathered
                span = in_the_thread(gathers[0])
                free = there = span.end
                yield span
        else:
            now = max(now, reduced)
            span = in_the_thread(step)
            free = reduced = span.end
            yield span


def exposed_s(order: Sequence[Step], seconds: dict[str, float], prefetch: bool, compute_s: float) -> float:
    """Return how much longer than its computing a step takes.

    Args:
        order, seconds, prefetch: as of `timeline`, "gather" and "reduce" alone.
        compute_s: of all units together.
    """
    units = 1 + max(step.unit for step in order)
    computing = {kind: compute_s * part / units for kind, part in PARTS.items()}
    return max(span.end for span in timeline(order, seconds | computing, prefetch)) - compute_s


def simulated(setting: Setting, stage: int, units: int, prefetch: bool = False) -> Outcome:
    """Simulate a stage of ZeRO, 1 to 3, for a model of `units` units.

    Args:
        prefetch: for stage 3.
    """
    seconds = {kind: collective_s(schedule, setting, setting.nbytes / units) for kind, schedule in COLLECTIVES.items()}
    return in_rounds(setting, 1, partial(exposed_s, list(steps(stage, units)), seconds, prefetch and stage == 3))
