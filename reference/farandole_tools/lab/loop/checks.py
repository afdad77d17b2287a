"""Checks of lab 16: a loop on several ranks is the loop of one process.

`labs/16_bring_your_own_loop/check.py` names these checks, and imports this module on the ranks only, since it needs
torch. `student` is a `harness.Harness`, in this process or another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farandole_tools.lab import expect
from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.expectations import counted, expect_returned
from farandole_tools.lab.labs import FILES
from farandole_tools.lab.loop.expected import (
    RARE_ROWS,
    ROWS,
    Divided,
    State,
    as_vector,
    clipped,
    course,
    gradient,
    gradients_from,
    parameters_of,
    parts_of,
    state_from,
    state_of,
    trained,
    uneven,
)
from farandole_tools.lab.loop.mistakes import clipping_mistakes, usual_mistakes, wrong_vector
from farandole_tools.lab.loop.watch import STOPPED_AFTER, Watch, listed
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.single_process import Job, Model, Part

Gradients = dict[str, Tensor | None]

LENGTHS = ((8, 3), (46, 8), (12, 4), (5, 7), (7, 1))  # of an epoch and of a batch
FREE = 1e6  # a bound that no gradient reaches


def expect_everywhere(calls: CollectiveCommunicator, problem: str, when: int = 0) -> None:
    """Expect that no rank has a problem; all raise the first one, so that none waits for another. Collective."""
    found = calls.first_text(problem, when)
    expect(not found, found)


def check_share(student: Any, comm: LabCommunicator) -> None:
    calls = CollectiveCommunicator(comm)
    own_seed = np.array([secrets.randbelow(2**31)])  # so that no rank can know rank 0's model unless it is sent
    seeds = [int(each[0]) for each in comm.everybodys(own_seed)]
    found = student.share(seeds[comm.rank], calls)
    calls.returned()
    expect_everywhere(calls, wrong_share(found, state_of(Job(seeds[0]).model), comm.rank))
    expect_everywhere(calls, wrong_broadcast(calls))


def wrong_share(report: dict[str, Any], right: State, rank: int) -> str:
    """Say what is wrong with a shared model, of which the harness reports; "" if nothing is."""
    model = Job().model
    for name in report["replaced"]:
        return f"{name:.40} is another object afterwards, and the optimizer holds the old one: copy into it"
    if not report["tied"]:
        return "words.weight and output.weight are no longer the same parameter"
    found = state_from(report["state"])
    wrong = [name for name in right if not torch.equal(found[name], right[name])]
    trains = {name: each.requires_grad for name, each in model.named_parameters()}
    if changed := [name for name in trains if report["trains"].get(name) != trains[name]]:
        return f"requires_grad of {', '.join(changed)} has changed"
    if not wrong:
        return ""
    hint = ""
    if set(wrong) <= dict(model.named_buffers()).keys():
        hint = ": buffers are not among the parameters"
    elif set(wrong) <= {name for name, train in trains.items() if not train}:
        hint = ": a frozen parameter has to be the same on all ranks, too"
    elif all(torch.allclose(found[name].double(), right[name].double(), rtol=1e-5) for name in wrong):
        hint = ", by rounding: these are numbers of 64 bits"
    if len(wrong) == len(right):
        return f"on rank {rank} nothing of the model is as on rank 0"
    return f"on rank {rank} {listed(wrong)} {'is' if len(wrong) == 1 else 'are'} not as on rank 0{hint}"


def wrong_broadcast(calls: CollectiveCommunicator) -> str:
    names = [call.name for call in calls.calls]
    if "all_reduce" in names:
        return f"share calls all_reduce {counted(names.count('all_reduce'), 'time')}: a broadcast is enough"
    if len(names) != 1:
        return f"share calls broadcast {counted(len(names), 'time')}: put everything into one array, and send it once"
    state = course().states[0]
    sent, needed = calls.calls[0].nbytes, sum(each.nbytes for each in state.values())
    twice = (
        ": words.weight and output.weight are one parameter" if sent == needed + state["words.weight"].nbytes else ""
    )
    return "" if sent == needed else f"{sent:,} bytes are broadcast, where the model has {needed:,}{twice}"


def check_batches(student: Any, comm: LabCommunicator) -> None:
    for rows, batch in LENGTHS:
        order = [int(row) for row in np.random.default_rng(rows).permutation(rows)]
        wholes = [order[start : start + batch] for start in range(0, rows, batch)]
        for size in range(1, 8):
            with comm.case(f"{rows} rows, batches of {batch}, {counted(size, 'rank')}"):
                given = [student.parts(list(order), batch, rank, size) for rank in range(size)]
                for rank, parts in enumerate(given):
                    expect_returned(parts, "parts")
                    expect_parts(parts, wholes, rank)
                for number, whole in enumerate(wholes):
                    expect_divided([[int(row) for row in parts[number].rows] for parts in given], whole, number)
                    for rank, parts in enumerate(given):
                        of = parts[number].of
                        told = f"batch {number} has {counted(len(whole), 'row')}, and rank {rank} says it has {of}"
                        expect(of == len(whole), told)


def expect_parts(parts: Any, wholes: Sequence[Sequence[int]], rank: int) -> None:
    """Expect that a rank has a part of each batch."""
    expect(
        isinstance(parts, list | tuple) and all(isinstance(each, Part) for each in parts),
        f"parts returns {str(parts)[:40]}, where a list of Part(rows, of) is needed",
    )
    batches = counted(len(wholes), "batch", "batches")
    text = f"rank {rank} has {counted(len(parts), 'part')}, where one process has {batches}"
    fewer = len(parts) < len(wholes)
    expect(len(parts) == len(wholes), text + (": the last, smaller batch counts, too" if fewer else ""))


def expect_divided(rows: Sequence[Sequence[int]], whole: Sequence[int], number: int) -> None:
    """Expect that the parts of a batch are that batch, and as equal as can be."""
    together = [row for part in rows for row in part]
    told = f"batch {number} is of the rows {sorted(whole)}"
    twice = sorted({row for row in together if together.count(row) > 1})
    expect(not twice, f"{told}, and {named_rows(twice)} {'is' if len(twice) == 1 else 'are'} used more than once")
    foreign = sorted(set(together) - set(whole))
    expect(not foreign, f"{told}, and the ranks' parts of it also have {named_rows(foreign)}: divide each batch")
    missing = sorted(set(whole) - set(together))
    expect(not missing, f"{told}, and no rank has {named_rows(missing)}")
    lengths = [len(part) for part in rows]
    expect(
        max(lengths) - min(lengths) <= 1, f"the ranks' parts of batch {number} have {lengths} rows: one more at most"
    )


def named_rows(rows: Sequence[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}"


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
            expect_everywhere(calls, wrong_gradient(gradients, divided, comm.rank))


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
            expect_everywhere(calls, wrong_branch(gradients, comm.rank, takes))
            expect_everywhere(calls, wrong_gradient(gradients, divided, comm.rank))


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
            expect_everywhere(calls, wrong_message(Job().model, calls))


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
            expect_everywhere(calls, wrong_vector(model, found, clipped(mean, bound), mistakes, what))


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
            expect_everywhere(calls, wrong_vector(ours, before - after, right, mistakes, what))
            expect_everywhere(calls, more_calls(calls, alone, len(rows)))
            nn.utils.vector_to_parameters(parameters_of(ours) - right, trained(ours).values())
            last, before = right, after


def more_calls(calls: CollectiveCommunicator, alone: CollectiveCommunicator, batches: int) -> str:
    """Say that there are more calls for several batches than for one alone; "" if there are not."""
    if len(calls.calls) <= max(1, len(alone.calls)):
        return ""
    told = f"all_reduce is called {counted(len(calls.calls), 'time')} for a step of {batches} batches"
    return f"{told}, and {counted(len(alone.calls), 'time')} for one batch: add up on each rank before anything is sent"


def check_train(student: Any, comm: LabCommunicator) -> None:
    calls, watch = CollectiveCommunicator(comm), Watch(comm.rank)
    student.train(comm.rank, calls, str(Path(FILES, "train").resolve()), STOPPED_AFTER, watch)
    calls.returned()
    expect_everywhere(calls, watch.verdict(), watch.when)
