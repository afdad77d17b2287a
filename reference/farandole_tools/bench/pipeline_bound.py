"""The part of the cores' time that a pipeline can fill with its passes, where several stages share a core.

At the beginning of a batch the first stage alone has something to do, and at its end again. While fewer stages than
cores have something to do, a core is idle. For how long depends on how the others share the cores: here evenly, as
processes do. Messages take no time.
"""

from __future__ import annotations

from collections import deque

from farandole.model_parallel.step_costs import duration
from farandole.model_parallel.steps import (
    ReceiveActivation,
    ReceiveGradient,
    Schedule,
    SendActivation,
    SendGradient,
    Times,
    with_messages,
)

ARRIVES_AS = {SendActivation: ReceiveActivation, SendGradient: ReceiveGradient}
SOON = 1e-9  # of a pass: less than this is left of one that is done


def filled(schedule: Schedule, stages: int, micro_batches: int, cores: int, times: Times | None = None) -> float:
    """Return the work of all passes of a batch over what the cores could do until the last one is done, 0 to 1.

    Args:
        times: of a stage's passes; None: each half of a backward pass takes as long as a forward pass.
    """
    times = times or Times()
    left = [0.0] * stages  # of the pass that a stage is doing
    arrived: set[tuple[type, int, int]] = set()
    now = work = 0.0
    remaining = [
        deque(with_messages(schedule.computations(stage, stages, micro_batches), stage, stages, schedule.placement))
        for stage in range(stages)
    ]

    def advance(stage: int) -> bool:
        """Return whether the stage, which does nothing, has taken a step: a message, or the beginning of a pass."""
        step = remaining[stage][0]
        if isinstance(step, ReceiveActivation | ReceiveGradient):
            if (type(step), step.micro_batch, step.virtual_stage) not in arrived:
                return False
        elif isinstance(step, SendActivation | SendGradient):
            arrived.add((ARRIVES_AS[type(step)], step.micro_batch, step.virtual_stage))
        else:
            left[stage] = duration(step, times, schedule.placement.passes)
        remaining[stage].popleft()
        return True

    while True:
        while any(advance(stage) for stage in range(stages) if remaining[stage] and left[stage] <= SOON):
            pass
        busy = [stage for stage in range(stages) if left[stage] > SOON]
        if not busy:
            return work / (min(cores, stages) * now)
        shortest = min(left[stage] for stage in busy)
        now += shortest * max(1.0, len(busy) / cores)
        work += shortest * len(busy)
        for stage in busy:
            left[stage] -= shortest
