"""Checks of lab 16: a loop on several ranks is the loop of one process, also when it is killed on the way.

`labs/16_bring_your_own_loop/check.py` names these checks, and imports this module on the ranks only, since it needs
torch. Run as a program, this is one rank of a training that is killed or continued:

    python -m farandole_tools.lab.loop_checks SUBMISSION FOLDER FIRST [RANK MOMENT]

FIRST is the number of steps after which it should continue, and MOMENT, `step` or `save`, when RANK is killed.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor, nn

from farandole.errors import LaunchError
from farandole.runtime.failure import PeerLost
from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import expect, learner, single_process
from farandole_tools.lab.collective_calls import CollectiveCommunicator, DifferentCalls
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.expectations import counted, expect_returned
from farandole_tools.lab.rank_status import named
from farandole_tools.lab.single_process import PAIRS, RARE, SAMPLES, STEPS, Job, Model, Part, mean_loss

State = dict[str, Tensor]
Divided = Sequence[Sequence[Sequence[int]]]  # batch → rank → rows
Moment = Literal["step", "save"]

RARE_ROWS = [row for row in range(SAMPLES) if PAIRS[row, 0] == RARE]
ROWS = [row for row in range(SAMPLES) if row not in RARE_ROWS]
LENGTHS = ((8, 3), (46, 8), (12, 4), (5, 7), (7, 1))  # of an epoch and of a batch
FREE = 1e6  # a bound that no gradient reaches
CLOSE = 1e-5  # relative; a bound of the norm may be computed as torch does it, or without its 1e-6
EVERY = 2  # steps after which the state is saved
STOPPED_AFTER = 4  # steps after which the training is interrupted
REAL_S = 60.0


# ---- what is right


class Course(NamedTuple):
    """The training in one process: the state before each step and at the end, and the learning rate of each step."""

    states: list[State]
    rates: list[float]


@cache
def course() -> Course:
    job = Job()
    found = Course([state_of(job.model)], [])
    job.optimizer.register_step_pre_hook(lambda *_: found.rates.append(rate_of(job.optimizer)))
    job.optimizer.register_step_post_hook(lambda *_: found.states.append(state_of(job.model)))
    single_process.train(job)
    return found


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


def state_of(model: nn.Module) -> State:
    """Return all parameters and buffers by name; a tied parameter once."""
    return {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def as_vector(tensors: Sequence[Tensor | None], model: nn.Module) -> Tensor:
    """Return one vector of what belongs to the trained parameters; 0 for what is None."""
    pairs = zip(tensors, trained(model).values(), strict=True)
    return torch.cat([torch.zeros_like(like).flatten() if each is None else each.flatten() for each, like in pairs])


def parameters_of(model: nn.Module) -> Tensor:
    return as_vector([each.detach() for each in trained(model).values()], model)


def gradient_of(model: nn.Module) -> Tensor:
    return as_vector([each.grad for each in trained(model).values()], model)


def gradient(model: nn.Module, rows: Sequence[int]) -> Tensor:
    """Return the gradient of the mean loss over these rows; 0 for none."""
    if not rows:
        return torch.zeros_like(parameters_of(model))
    found = torch.autograd.grad(mean_loss(model, rows), list(trained(model).values()), allow_unused=True)
    return as_vector(found, model)


def uneven(rows: Sequence[int], size: int, turn: int = 0) -> list[list[int]]:
    """Divide rows among ranks, the lower a rank's number the more; of three or more the last one has none.

    All is moved `turn` ranks further.
    """
    weights = list(reversed(range(size))) if size > 2 else list(range(size, 0, -1))
    ends = [0, *(round(len(rows) * each / sum(weights)) for each in accumulate(weights))]
    found = [list(rows[begin:end]) for begin, end in pairwise(ends)]
    return found[-turn % size :] + found[: -turn % size]


def parts_of(rank: int, divided: Divided) -> list[Part]:
    return [Part(batch[rank], sum(map(len, batch))) for batch in divided]


# ---- how it is told


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def near(found: Tensor, right: Tensor, scale: float | None = None) -> bool:
    far = float((found - right).abs().max()) if found.numel() else 0.0
    return far <= CLOSE * (scale or float(right.abs().max()) or 1.0)  # what is no number is far


def expect_everywhere(calls: CollectiveCommunicator, problem: str, when: int = 0) -> None:
    """Expect that no rank has a problem; all raise the first one, so that none waits for another. Collective."""
    found = calls.first_text(problem, when)
    expect(not found, found)


def where(model: nn.Module, element: int) -> str:
    """Return the name of the parameter to which this element of the vector belongs."""
    for name, each in trained(model).items():
        if element < each.numel():
            return name
        element -= each.numel()
    raise IndexError(element)


def wrong_vector(
    model: nn.Module, found: Tensor, right: Tensor, mistakes: Sequence[tuple[Tensor, str]], what: str
) -> str:
    """Say what is wrong with a gradient, or with how far the parameters have moved; "" if nothing is."""
    if near(found, right):
        return ""
    if not bool(found.isfinite().all()):
        return f"{what} is not finite: the mean over no rows is no number"
    if not bool(found.any()):
        return f"{what} is 0: is it added up over the ranks?"
    for mistaken, text in mistakes:
        if near(found, mistaken) and not near(mistaken, right):
            return f"{what} is {text}"
    away = int((found - right).abs().argmax())
    return f"{what} is {found[away]:.6f} in an element of {where(model, away)}, where one process has {right[away]:.6f}"


def usual_mistakes(model: nn.Module, divided: Divided, rank: int) -> list[tuple[Tensor, str]]:
    """Return the results of usual mistakes in the mean over batches and ranks, each with its message."""
    size, batches = len(divided[0]), len(divided)
    own = [[gradient(model, rows) for rows in batch] for batch in divided]
    shares = [[len(rows) / sum(map(len, batch)) for rows in batch] for batch in divided]
    weighted = [[s * g for s, g in zip(*each, strict=True)] for each in zip(shares, own, strict=True)]
    whole = [torch.stack(each).sum(0) for each in weighted]
    mean = torch.stack(whole).mean(0)
    by_rank = [torch.stack([batch[r] for batch in own]).mean(0) for r in range(size)]
    total = torch.stack(by_rank).sum(0)
    lengths = [sum(map(len, batch)) for batch in divided]
    late = torch.stack([shares[-1][r] * by_rank[r] for r in range(size)]).sum(0)
    pooled = torch.stack([n * g for n, g in zip(lengths, whole, strict=True)]).sum(0) / sum(lengths)
    divide_by = "divide by the number of batches that are added up"
    return [
        (torch.stack([batch[rank] for batch in weighted]).mean(0), "this rank's own: is it added up over the ranks?"),
        (by_rank[rank], "this rank's own: is it added up over the ranks?"),
        (total, "the sum over the ranks: each rank counts by its share of the batch, len(rows) / of"),
        (total / size, "the plain mean over the ranks: a rank with fewer rows has to count less, by len(rows) / of"),
        (total * shares[0][rank], "the sum, times this rank's share: weight each rank's part before it is added up"),
        (mean * batches, f"the sum over the batches: {divide_by}"),
        (total * batches, f"the sum over ranks and batches: weight by len(rows) / of, and {divide_by}"),
        (whole[-1], "that of the last batch: the gradients of the others have been lost"),
        (whole[-1] / batches, "that of the last batch: the gradients of the others have been lost"),
        (late, "weighted by the shares of the last batch: a rank's share differs from batch to batch"),
        (pooled, "the mean over all rows: one process takes the mean of each batch, and of these the mean"),
        (-mean, "the negative of what it should be"),
    ]


# ---- the checks


def check_share(student: Any, comm: LabCommunicator) -> None:
    job, calls = Job(comm.rank), CollectiveCommunicator(comm)
    model, before = job.model, dict(job.model.named_parameters())
    trains = {name: each.requires_grad for name, each in before.items()}
    student.share(model, calls)
    calls.returned()
    expect_everywhere(calls, wrong_share(model, before, trains, comm.rank))
    expect_everywhere(calls, wrong_broadcast(model, calls))


def wrong_share(model: Model, before: dict[str, nn.Parameter], trains: dict[str, bool], rank: int) -> str:
    right = course().states[0]
    for name, each in model.named_parameters():
        if each is not before.get(name):
            return f"{name} is another object afterwards, and the optimizer holds the old one: copy into it"
    if model.output.weight is not model.words.weight:
        return "words.weight and output.weight are no longer the same parameter"
    found = state_of(model)
    wrong = [name for name in right if not torch.equal(found[name], right[name])]
    if changed := [name for name, each in model.named_parameters() if each.requires_grad != trains[name]]:
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


def wrong_broadcast(model: Model, calls: CollectiveCommunicator) -> str:
    names = [call.name for call in calls.calls]
    if "all_reduce" in names:
        return f"share calls all_reduce {counted(names.count('all_reduce'), 'time')}: a broadcast is enough"
    if len(names) != 1:
        return f"share calls broadcast {counted(len(names), 'time')}: put everything into one array, and send it once"
    sent, needed = calls.calls[0].nbytes, sum(each.nbytes for each in state_of(model).values())
    twice = ": words.weight and output.weight are one parameter" if sent == needed + model.words.weight.nbytes else ""
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


def averaged(student: Any, comm: LabCommunicator, divided: Divided) -> tuple[Model, CollectiveCommunicator]:
    """Have the submission compute the mean gradient; the model with it, and the calls."""
    model, calls = Job().model, CollectiveCommunicator(comm)
    student.mean_gradient(model, parts_of(comm.rank, divided), calls)
    calls.returned()
    return model, calls


def check_mean_gradient(student: Any, comm: LabCommunicator) -> None:
    for rows in (ROWS[:8], ROWS[8:14]):
        divided = [uneven(rows, comm.size)]
        lengths = ", ".join(str(len(part)) for part in divided[0])
        with comm.case(f"a batch of {len(rows)} rows, of which the ranks have {lengths}"):
            model, calls = averaged(student, comm, divided)
            right, what = gradient(Job().model, rows), f"the gradient on rank {comm.rank}"
            mistakes = usual_mistakes(Job().model, divided, comm.rank)
            expect_everywhere(calls, wrong_vector(model, gradient_of(model), right, mistakes, what))


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
            model, calls = averaged(student, comm, divided)
            expect_everywhere(calls, wrong_branch(model, comm.rank, takes))
            right = gradient(Job().model, [row for rows in divided[0] for row in rows])
            mistakes = usual_mistakes(Job().model, divided, comm.rank)
            what = f"the gradient on rank {comm.rank}"
            expect_everywhere(calls, wrong_vector(model, gradient_of(model), right, mistakes, what))


def wrong_branch(model: Model, rank: int, takes: Sequence[int]) -> str:
    if model.frozen.weight.grad is not None:
        return "frozen.weight has a gradient, and is not trained"
    for name, each in trained(model).items():
        used = bool(takes) or not name.startswith("rare")
        if used and each.grad is None:
            hint = f", and {named(takes)} has used it" if name.startswith("rare") else ""
            return f"{name} has no gradient on rank {rank}{hint}: all ranks have to move alike"
        if not used and each.grad is not None:
            return (
                f"{name} has a gradient on rank {rank}, and no rank has used it: it has to be None, since AdamW "
                "moves a parameter whose gradient is 0"
            )
    return ""


def check_one_message(student: Any, comm: LabCommunicator) -> None:
    for text, _, divided in branches(comm.size):
        with comm.case(text):
            model, calls = averaged(student, comm, divided)
            expect_everywhere(calls, wrong_message(model, calls))


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
    divided = [uneven(ROWS[8:16], comm.size)]
    norm = float(gradient(Job().model, ROWS[8:16]).norm())
    for text, bound in (("a bound of a third of the norm", norm / 3), ("a bound that is not reached", FREE)):
        with comm.case(text):
            model, calls = Job().model, CollectiveCommunicator(comm)
            before = parameters_of(model)
            take_step(student, calls, model, divided, bound)
            right = clipped(gradient(Job().model, ROWS[8:16]), bound)
            mistakes = clipping_mistakes(Job().model, divided[0], bound, comm.rank)
            what = f"the gradient of rank {comm.rank}'s step"
            expect_everywhere(calls, wrong_vector(model, before - parameters_of(model), right, mistakes, what))


def take_step(student: Any, calls: CollectiveCommunicator, model: Model, divided: Divided, bound: float) -> None:
    """Have the submission take a step that moves the parameters by the gradient itself."""
    optimizer = torch.optim.SGD(trained(model).values(), lr=1.0)
    student.take_step(model, optimizer, parts_of(calls.rank, divided), calls, bound)
    calls.returned()


def clipped(vector: Tensor, bound: float) -> Tensor:
    return vector * min(1.0, bound / (float(vector.norm()) + 1e-6))


def clipping_mistakes(
    model: nn.Module, parts: Sequence[Sequence[int]], bound: float, rank: int
) -> list[tuple[Tensor, str]]:
    own = [gradient(model, rows) for rows in parts]
    shares = [len(rows) / sum(map(len, parts)) for rows in parts]
    weighted = [s * g for s, g in zip(shares, own, strict=True)]
    mean = torch.stack(weighted).sum(0)
    before = "clipped before it is added up: the bound is for the mean gradient"
    alone = torch.cat([clipped(each, bound) for each in mean.split([each.numel() for each in trained(model).values()])])
    return [
        (mean, "the mean gradient as it is: it has to be clipped"),
        (torch.stack([clipped(each, bound) for each in weighted]).sum(0), before),
        (torch.stack([s * clipped(g, bound) for s, g in zip(shares, own, strict=True)]).sum(0), before),
        (mean * min(1.0, bound / (float(own[rank].norm()) + 1e-6)), "scaled by the norm of this rank's own gradient"),
        (mean * min(1.0, bound / (float(weighted[rank].norm()) + 1e-6)), "scaled by the norm of this rank's own"),
        (alone, "clipped for each parameter alone: the bound is for all of them together"),
        *[
            (clipped(wrong, bound), "bounded, but that of a wrong mean")
            for wrong, _ in usual_mistakes(model, [parts], rank)
        ],
    ]


def check_accumulate(student: Any, comm: LabCommunicator) -> None:
    rows = ROWS[:8], ROWS[8:16], ROWS[16:22]
    divided = [uneven(batch, comm.size, turn) for turn, batch in enumerate(rows)]
    alone = averaged(student, comm, divided[:1])[1]
    ours, theirs, calls = Job().model, Job().model, CollectiveCommunicator(comm)
    last = torch.zeros_like(parameters_of(ours))
    for step in range(2):
        with comm.case(f"step {step}, of batches of 8, 8 and 6 rows"):
            calls.calls.clear()
            before = parameters_of(theirs)
            mistakes = usual_mistakes(ours, divided, comm.rank)
            right = torch.stack([gradient(ours, batch) for batch in rows]).mean(0)
            take_step(student, calls, theirs, divided, FREE)
            left = "what it should be and that of the step before: begin each step with zero_grad"
            mistakes += [(right + last, left), (right + comm.size * last, left)] if step else []
            found = before - parameters_of(theirs)
            expect_everywhere(
                calls, wrong_vector(ours, found, right, mistakes, f"the gradient of rank {comm.rank}'s step")
            )
            expect_everywhere(calls, more_calls(calls, alone, len(rows)))
            nn.utils.vector_to_parameters(parameters_of(ours) - right, trained(ours).values())
            last = right


def more_calls(calls: CollectiveCommunicator, alone: CollectiveCommunicator, batches: int) -> str:
    """Say that there are more calls for several batches than for one alone; "" if there are not."""
    if len(calls.calls) <= max(1, len(alone.calls)):
        return ""
    told = f"all_reduce is called {counted(len(calls.calls), 'time')} for a step of {batches} batches"
    return f"{told}, and {counted(len(alone.calls), 'time')} for one batch: add up on each rank before anything is sent"


class Watch:
    """Compares a training with that of one process, before and after each of its steps.

    Args:
        rank: for the messages.
        first: the number of steps after which it should begin.
        before: is told the number of steps done, before each.

    Attributes:
        done: the number of steps after which it stands, if it has begun where it should.
        problem: the first thing that is not as in one process, or "".
        when: `done` when the problem was found, which tells on which rank it came first.
    """

    def __init__(self, job: Job, rank: int, first: int = 0, before: Callable[[int], None] = lambda done: None) -> None:
        self.job, self.rank, self.first, self.before = job, rank, first, before
        self.done, self.problem, self.when = first, "", STEPS + 1
        job.optimizer.register_step_pre_hook(self._before_step)
        job.optimizer.register_step_post_hook(self._after_step)

    def verdict(self) -> str:
        """Return the problem, when the training has returned."""
        if self.done == STEPS or self.problem:
            return self.problem
        return f"rank {self.rank} returns after {self.done} of {STEPS} steps"

    def _before_step(self, *_: Any) -> None:
        self.before(self.done)
        if self.done >= STEPS:
            self._note(f"rank {self.rank} takes a step after the last one, of {STEPS}")
            return
        if self.done == self.first:
            self._note(self._wrong_beginning())
        rate, right = rate_of(self.job.optimizer), course().rates[self.done]
        if abs(rate - right) > CLOSE * right:
            told = f"after {counted(self.done, 'step')} the learning rate on rank {self.rank} is {rate:.4f}"
            hint = (
                "is the schedule's state saved, and loaded on all ranks?"
                if self.first
                else "job.schedule.step() after each step"
            )
            self._note(f"{told}, where one process has {right:.4f}: {hint}")

    def _wrong_beginning(self) -> str:
        found = state_of(self.job.model)
        wrong = differing(found, course().states[self.first])
        if not wrong:
            return ""
        if not self.first:
            return f"rank {self.rank} begins with another {wrong[0]} than rank 0 had"
        at = f"rank {self.rank} continues"
        same = [number for number, state in enumerate(course().states) if not differing(found, state)]
        saved = f"the state is to be saved after every {EVERY} steps"
        if same:
            return f"{at} after {counted(same[0], 'step')}, and should after {self.first}: {saved}"
        if set(wrong) <= dict(self.job.model.named_buffers()).keys():
            return f"{at} with other buffers than those after {self.first} steps: {listed(wrong)}"
        return (
            f"{at} with other parameters than those after {self.first} steps: are they saved, and loaded on all ranks?"
        )

    def _after_step(self, *_: Any) -> None:
        self.done += 1
        if self.done > STEPS or self.problem:
            return
        found, right = state_of(self.job.model), course().states[self.done]
        if wrong := differing(found, right):
            away = float((found[wrong[0]].double() - right[wrong[0]].double()).abs().max())
            told = f"after {counted(self.done, 'step')} {wrong[0]} on rank {self.rank} is off by {away:.2g}"
            hint = ": AdamW has a state, too" if self.first and self.done == self.first + 1 else ""
            self._note(told + hint)

    def _note(self, problem: str) -> None:
        if problem and not self.problem:
            self.problem, self.when = problem, self.done


def differing(found: State, right: State) -> list[str]:
    return [name for name in right if not near(found[name].double(), right[name].double())]


def check_train(student: Any, comm: LabCommunicator) -> None:
    folder = Path("train").resolve()
    folder.mkdir(exist_ok=True)
    job, calls = Job(comm.rank), CollectiveCommunicator(comm)
    watch = Watch(job, comm.rank)
    student.train(job, calls, folder, STOPPED_AFTER)
    calls.returned()
    expect_everywhere(calls, watch.verdict(), watch.when)


class Stopped(BaseException):
    """Raised where a process would be killed."""


def check_kill(student: Any, comm: LabCommunicator) -> None:
    if comm.rank == 0:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            rehearse(student, comm, Path(folder), "step", STOPPED_AFTER)
        kill_and_continue(student, comm, (3, 2), 1, "step", STOPPED_AFTER)


def check_unfinished_save(student: Any, comm: LabCommunicator) -> None:
    if comm.rank == 0:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            rehearse(student, comm, Path(folder), "save", STOPPED_AFTER - EVERY)
        kill_and_continue(student, comm, (1, 2), 0, "save", STOPPED_AFTER - EVERY)


def rehearse(student: Any, comm: LabCommunicator, folder: Path, moment: Moment, saved: int) -> None:
    """Interrupt a training in this process, and have it continued: what is wrong already here needs no launch."""
    folder = folder.resolve()
    calls = CollectiveCommunicator(LabCommunicator(MPI.Intracomm(MPI.COMM_SELF.Dup())))
    job = Job()
    watch = Watch(job, 0, before=partial(stop_at, STOPPED_AFTER if moment == "step" else STEPS, stop))
    when = f"one process, interrupted after {STOPPED_AFTER} steps" + ", while it saves" * (moment == "save")
    with comm.case(when):
        try:
            with interrupted_save(watch, stop if moment == "save" else None):
                student.train(job, calls, folder, EVERY)
        except Stopped:
            expect(not watch.problem, watch.problem)
        else:
            verdict = watch.verdict()
            expect(not verdict, verdict)
            expect(False, f"torch.save(state, file) is not called after {STOPPED_AFTER} steps, a multiple of {EVERY}")
    with comm.case(f"{when}{', half of the file is there' * (moment == 'save')}; then started again"):
        job = Job(100)
        watch = Watch(job, 0, saved)
        student.train(job, calls, folder, EVERY)
        verdict = watch.verdict()
        expect(not verdict, verdict)


def stop() -> NoReturn:
    raise Stopped


def stop_at(number: int, stop: Callable[[], None], done: int) -> None:
    if done == number:
        stop()


@contextmanager
def interrupted_save(watch: Watch, stop: Callable[[], None] | None) -> Iterator[None]:
    """Within the body, torch.save writes half of its file and then calls `stop`, once enough steps are done."""
    save = torch.save

    def write_half(state: object, file: Any, *args: Any, **named: Any) -> None:
        if stop is None or watch.done < STOPPED_AFTER:
            save(state, file, *args, **named)
            return
        whole = io.BytesIO()
        save(state, whole)
        half = whole.getvalue()[: whole.tell() // 2]
        if hasattr(file, "write"):
            file.write(half)
            file.flush()
        else:
            Path(file).write_bytes(half)
        stop()

    with patch.object(torch, "save", write_half):
        yield


def kill_and_continue(
    student: Any, comm: LabCommunicator, sizes: tuple[int, int], number: int, moment: Moment, saved: int
) -> None:
    """Kill a real process of a training, and have it continued; `sizes` says by how many processes each."""
    size, then = sizes
    what = f"{counted(size, 'process', 'processes')}, SIGKILL to rank {number} after {STOPPED_AFTER} steps"
    what += ", while it saves" * (moment == "save")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        (folder / "saved").mkdir()
        with comm.case(what):
            wrong, ended = launch(student, folder, size, 0, str(number), moment)
            expect(not wrong, wrong)
            expect((folder / "killed").exists(), ended or "the training has ended before")
        with comm.case(f"{what}; then started again with {then}"):
            wrong, ended = launch(student, folder, then, saved)
            expect(not wrong and not ended, wrong or ended)


def launch(student: Any, folder: Path, size: int, first: int, *kill: str) -> tuple[str, str]:
    """Train on `size` processes; return what was wrong on the first rank with a problem, and how the launch failed."""
    program = ["-m", "farandole_tools.lab.loop_checks", str(student.__file__), str(folder), str(first), *kill]
    ended = ""
    try:
        run_ranks(program, size, timeout_s=REAL_S)
    except LaunchError as error:
        ended = error.message.strip().splitlines()[0]
    verdicts = [tuple(json.loads(path.read_text())) for path in folder.glob("*.verdict")]
    for path in folder.glob("*.verdict"):
        path.unlink()
    wrong = sorted(each for each in verdicts if each[-1])
    return str(wrong[0][-1]) if wrong else "", ended


def real_rank(submission: str, folder: str, first: str, number: str = "", moment: str = "") -> None:
    """One process of a training that is killed or continued."""
    comm = LabCommunicator.world()
    job = Job(100 * (int(first) > 0) + comm.rank)
    watch = Watch(job, comm.rank, int(first))
    strikes = str(comm.rank) == number

    def kill() -> None:
        leave(watch.when, watch.problem)
        (Path(folder) / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def before(name: str) -> None:
        if strikes and moment == "step" and name == "all_reduce" and watch.done == STOPPED_AFTER:
            kill()

    path = Path(submission)
    calls = CollectiveCommunicator(comm, before)

    def leave(when: int, text: str) -> None:
        told = (watch.when, watch.problem) if watch.problem else (when, text)
        (Path(folder) / f"{comm.rank}.verdict").write_text(json.dumps([told[0], comm.rank, told[1]]))

    try:
        with interrupted_save(watch, kill if strikes and moment == "save" else None):
            learner.load(path).train(job, calls, Path(folder) / "saved", EVERY)
        calls.returned()
        leave(watch.when, watch.verdict())
    except (PeerLost, MPI.Exception):
        leave(watch.when, watch.problem)
        os._exit(1)  # another process has been killed, and so this one ends, too
    except BaseException as error:
        leave(watch.done, f"rank {comm.rank}: {learner.explain(error, path)}")
        if isinstance(error, DifferentCalls):
            comm.barrier()  # all ranks have raised it: none ends before the others have said why
        raise


if __name__ == "__main__":
    real_rank(*sys.argv[1:])
