"""Checks of lab 16: the gradient of whole batches on several ranks, its messages, and the step taken with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.loop.expected import (
    RARE_ROWS,
    ROWS,
    Divided,
    as_vector,
    clipped,
    gradient,
    gradients_from,
    parameters_of,
    parts_of,
    state_from,
    trained,
    uneven,
)
from farandole_tools.lab.loop.mistakes import clipping_mistakes, usual_mistakes, wrong_vector
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.single_process import Job, Model

Gradients = dict[str, Tensor | None]

FREE = 1e6  # a bound that no gradient reaches


def averaged(student: Any, comm: LabCommunicator, divided: Divided) -> tuple[Gradients, CollectiveCommunicator]:
    """Have the submission compute the mean gradient; return it by parameter, and the calls."""
    calls = CollectiveCommunicator(comm)
    found = student.mean_gradient(parts_of(comm.rank, divided), calls)
    calls.returned()
    return gradients_from(found), calls


def check_mean_gradient(student: Any, comm: LabCommunicator) -> None:
    for rows in (ROWS[:8], ROWS[8:14]):
        divided = [uneven(rows, comm.size)]
        lengths = ", ".join(str(len(part)) for part in divided[0])
        with comm.case(f"a batch of {len(rows)} rows, of which the ranks have {lengths}"):
            gradients, calls = averaged(student, comm, divided)
            calls.raise_first(wrong_gradient(gradients, divided, comm.rank))


def wrong_gradient(gradients: Gradients, divided: Divided, rank: int) -> str:
    """Say what is wrong with the mean gradient of one batch; "" if nothing is."""
    model = Job().model
    right = gradient(model, [row for rows in divided[0] for row in rows])
    what, mistakes = f"the gradient on rank {rank}", usual_mistakes(model, divided, rank)
    return wrong_vector(model, as_vector(gradients, model), right, mistakes, what)


def branches(size: int) -> Iterator[tuple[str, list[int], Divided]]:
    """In words, the ranks that have a row which takes the branch, and the rows of all ranks."""
    for text, takes in (("rank 0 takes the branch", [0]), (f"rank {size - 1} takes the branch", [size - 1])):
        yield f"only {text}", takes, [[rows + RARE_ROWS[:1] * (rank in takes) for rank, rows in enumerate(pairs(size))]]
    yield "no rank takes the branch", [], [pairs(size)]


def pairs(size: int) -> list[list[int]]:
    return [ROWS[2 * rank : 2 * rank + 2] for rank in range(size)]


def check_branch(student: Any, comm: LabCommunicator) -> None:
    for text, takes, divided in branches(comm.size):
        with comm.case(text):
            gradients, calls = averaged(student, comm, divided)
            calls.raise_first(wrong_branch(gradients, comm.rank, takes))
            calls.raise_first(wrong_gradient(gradients, divided, comm.rank))


def wrong_branch(gradients: Gradients, rank: int, takes: Sequence[int]) -> str:
    if gradients["frozen.weight"] is not None:
        return "frozen.weight has a gradient, and is not trained"
    for name in trained(Job().model):
        used = bool(takes) or not name.startswith("rare")
        if used and gradients[name] is None:
            hint = f", and {named(takes)} has used it" if name.startswith("rare") else ""
            return f"{name} has no gradient on rank {rank}{hint}: all ranks have to move alike"
        if not used and gradients[name] is not None:
            return (
                f"{name} has a gradient on rank {rank}, and no rank has used it: it has to be None, since AdamW "
                "moves a parameter whose gradient is 0"
            )
    return ""


def check_one_message(student: Any, comm: LabCommunicator) -> None:
    for text, _, divided in branches(comm.size):
        with comm.case(text):
            _, calls = averaged(student, comm, divided)
            calls.raise_first(wrong_message(Job().model, calls))


def wrong_message(model: Model, calls: CollectiveCommunicator) -> str:
    who, names = f"rank {calls.rank}", [call.name for call in calls.calls]
    if "broadcast" in names:
        return f"{who} calls broadcast: the sum over the ranks is there on all of them"
    if len(names) != 1:
        return f"{who} calls all_reduce {counted(len(names), 'time')}: put everything into one vector, and send it once"
    sent, flags = calls.calls[0].elements, len(trained(model))
    if calls.calls[0].kind != np.float64:
        return f"{who} adds up {calls.calls[0].kind}, and the gradient is float64"
    needed = sum(each.numel() for each in trained(model).values())
    if needed <= sent <= needed + flags:
        return ""
    told = f"{sent} numbers are added up. The gradient has {needed}, and a number for each of the {flags} parameters"
    for extra, hint in (
        (model.words.weight.numel(), ": words.weight and output.weight are one parameter"),
        (model.frozen.weight.numel(), ": frozen.weight has no gradient"),
    ):
        if needed + extra <= sent <= needed + extra + flags + 1:
            return told + hint
    return f"{told} may be added"


def check_clip(student: Any, comm: LabCommunicator) -> None:
    divided, model = [uneven(ROWS[8:16], comm.size)], Job().model
    mean = gradient(model, ROWS[8:16])
    norm = float(mean.norm())
    for text, bound in (("a bound of a third of the norm", norm / 3), ("a bound that is not reached", FREE)):
        with comm.case(text):
            calls = CollectiveCommunicator(comm)
            after = take_step(student, calls, divided, bound, first=True)
            mistakes = clipping_mistakes(model, divided[0], bound, comm.rank)
            what, found = f"the gradient of rank {comm.rank}'s step", parameters_of(model) - after
            calls.raise_first(wrong_vector(model, found, clipped(mean, bound), mistakes, what))


def take_step(student: Any, calls: CollectiveCommunicator, divided: Divided, bound: float, first: bool) -> Tensor:
    """Have the submission take a step that moves the parameters by the gradient itself; return them after it."""
    found = student.take_step(parts_of(calls.rank, divided), calls, bound, first)
    calls.returned()
    return as_vector(state_from(found), Job().model)


def check_accumulate(student: Any, comm: LabCommunicator) -> None:
    rows = ROWS[:8], ROWS[8:16], ROWS[16:22]
    divided = [uneven(batch, comm.size, turn) for turn, batch in enumerate(rows)]
    alone = averaged(student, comm, divided[:1])[1]
    ours, calls = Job().model, CollectiveCommunicator(comm)
    before = parameters_of(ours)
    last = torch.zeros_like(before)
    for step in range(2):
        with comm.case(f"step {step}, of batches of 8, 8 and 6 rows"):
            calls.calls.clear()
            mistakes = usual_mistakes(ours, divided, comm.rank)
            right = torch.stack([gradient(ours, batch) for batch in rows]).mean(0)
            after = take_step(student, calls, divided, FREE, first=step == 0)
            left = "what it should be and that of the step before: begin each step with zero_grad"
            mistakes += [(right + last, left), (right + comm.size * last, left)] if step else []
            what = f"the gradient of rank {comm.rank}'s step"
            calls.raise_first(wrong_vector(ours, before - after, right, mistakes, what))
            calls.raise_first(more_calls(calls, alone, len(rows)))
            nn.utils.vector_to_parameters(parameters_of(ours) - right, trained(ours).values())
            last, before = right, after


def more_calls(calls: CollectiveCommunicator, alone: CollectiveCommunicator, batches: int) -> str:
    """Say that there are more calls for several batches than for one alone; "" if there are not."""
    if len(calls.calls) <= max(1, len(alone.calls)):
        return ""
    told = f"all_reduce is called {counted(len(calls.calls), 'time')} for a step of {batches} batches"
    return f"{told}, and {counted(len(alone.calls), 'time')} for one batch: add up on each rank before anything is sent"
