"""Checks of lab 16: the shared start, the parts of each batch, and the whole training on several ranks.

`labs/16_bring_your_own_loop/check.py` names these checks, and imports this module on the ranks only, since it needs
torch. `student` is a `harness.Harness`, in this process or another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from farandole_tools.lab import expect
from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.expectations import counted, expect_returned
from farandole_tools.lab.labs import FILES
from farandole_tools.lab.loop.expected import State, course, state_from, state_of
from farandole_tools.lab.loop.watch import STOPPED_AFTER, Watch, listed
from farandole_tools.lab.single_process import Job, Part

LENGTHS = ((8, 3), (46, 8), (12, 4), (5, 7), (7, 1))  # of an epoch and of a batch


def check_share(student: Any, comm: LabCommunicator) -> None:
    calls = CollectiveCommunicator(comm)
    own_seed = np.array([secrets.randbelow(2**31)])  # so that no rank can know rank 0's model unless it is sent
    seeds = [int(each[0]) for each in comm.everybodys(own_seed)]
    found = student.share(seeds[comm.rank], calls)
    calls.returned()
    calls.raise_first(wrong_share(found, state_of(Job(seeds[0]).model), comm.rank))
    calls.raise_first(wrong_broadcast(calls))


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


def check_train(student: Any, comm: LabCommunicator) -> None:
    calls, watch = CollectiveCommunicator(comm), Watch(comm.rank)
    student.train(comm.rank, calls, str(Path(FILES, "train").resolve()), STOPPED_AFTER, watch)
    calls.returned()
    calls.raise_first(watch.verdict(), watch.when)
