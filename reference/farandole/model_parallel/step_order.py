"""The order in which all stages of a pipeline can take their steps: each receipt after the shipment that it waits for.

The order depends on the schedule alone, not on how long anything takes, so one pass over it times any computations,
links and stragglers (`checker`, and the simulator). Cost: O(steps of all stages).
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import (
    ReceiveActivation,
    ReceiveGradient,
    Schedule,
    SendActivation,
    SendGradient,
    Step,
    with_messages,
)

RECEIPTS, SHIPMENTS = (ReceiveActivation, ReceiveGradient), (SendActivation, SendGradient)
Sent = tuple[type[Step], int, int, int, int]  # kind, micro-batch, virtual stage that uses it, sender, receiver


class ScheduleError(AssertionError):
    """The schedule deadlocks or breaks a rule; the message says at which stage and micro-batch."""


def in_order(schedule: Schedule, stages: int, micro_batches: int) -> Iterator[tuple[int, Step, Sent | None]]:
    """Yield (stage, step, message) for all steps of all stages; the message is None where a stage computes.

    Raises:
        ScheduleError: some stages wait for messages that never come, or messages are never received.
    """
    plans = [
        list(with_messages(schedule.computations(stage, stages, micro_batches), stage, stages, schedule.placement))
        for stage in range(stages)
    ]
    at = [0] * stages
    under_way: set[Sent] = set()
    moved = True
    while moved:
        moved = False
        for stage, plan in enumerate(plans):
            while at[stage] < len(plan):
                step = plan[at[stage]]
                message: Sent | None = None
                if isinstance(step, RECEIPTS):
                    sent = SendActivation if isinstance(step, ReceiveActivation) else SendGradient
                    message = sent, step.micro_batch, step.virtual_stage, step.peer, stage
                    if message not in under_way:
                        break
                    under_way.remove(message)
                elif isinstance(step, SHIPMENTS):
                    message = type(step), step.micro_batch, step.virtual_stage, stage, step.peer
                    under_way.add(message)
                yield stage, step, message
                at[stage] += 1
                moved = True
    stuck = {stage: plan[at[stage]] for stage, plan in enumerate(plans) if at[stage] < len(plan)}
    where = f"{schedule.name}, {stages} stages, {micro_batches} micro-batches"
    if stuck:
        waits = "; ".join(f"stage {stage} in {step}" for stage, step in stuck.items())
        raise ScheduleError(f"{where}: deadlock, waiting for what is never sent: {waits}")
    if under_way:
        kind, micro_batch, virtual_stage, source, destination = next(iter(under_way))
        what = f"{kind.__name__} of micro-batch {micro_batch} for virtual stage {virtual_stage}"
        what += f", sent by stage {source} to {destination}"
        raise ScheduleError(f"{where}: no stage receives {what}")
