"""The methods of loop.py, parts.py and synchronous.py in farandole/own_loop/ in the form of this lab.

There a rank reads only its own share of the data, any all-reduce of the project adds up, and the method "backup" keeps
copies of the state in the memory of other ranks. Here the state is in one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from farandole.data.elastic_sampler import divide
from farandole.own_loop.synchronous import DistributedOptimizer
from farandole_tools.lab.single_process import ACCUMULATE, BATCH, EPOCHS, MAX_NORM, Job, Part, mean_loss, shuffled

if TYPE_CHECKING:
    from farandole_tools.lab.collective_calls import CollectiveCommunicator


def share(model: nn.Module, comm: CollectiveCommunicator) -> None:
    state = [each.detach() for each in (*model.parameters(), *model.buffers())]
    as_bytes = torch.cat([each.reshape(-1).view(torch.uint8) for each in state])
    comm.broadcast(as_bytes.numpy(), 0)
    for each, part in zip(state, as_bytes.split([each.nbytes for each in state]), strict=True):
        each.copy_(part.clone().view(each.dtype).reshape(each.shape))


def parts(order: Sequence[int], batch: int, rank: int, size: int) -> list[Part]:
    batches = [np.asarray(order[start : start + batch]) for start in range(0, len(order), batch)]
    return [Part(divide([rows], size)[rank].tolist(), len(rows)) for rows in batches]


def mean_gradient(model: nn.Module, parts: Sequence[Part], comm: CollectiveCommunicator) -> None:
    _add_up(model, distributed(torch.optim.SGD(model.parameters()), len(parts), None, comm), parts)


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    parts: Sequence[Part],
    comm: CollectiveCommunicator,
    max_norm: float,
) -> None:
    wrapped = distributed(optimizer, len(parts), max_norm, comm)
    _add_up(model, wrapped, parts)
    wrapped.step()


def distributed(
    optimizer: torch.optim.Optimizer, every: int, max_norm: float | None, comm: CollectiveCommunicator
) -> DistributedOptimizer:
    """The project's own, with this lab's communicator beneath."""
    world: Any = SimpleNamespace(comm=comm, communicate=lambda what: nullcontext())
    return DistributedOptimizer(world, optimizer, every, max_norm, lambda comm, vector: comm.all_reduce(vector))


def _add_up(model: nn.Module, optimizer: DistributedOptimizer, parts: Sequence[Part]) -> None:
    optimizer.zero_grad()
    for rows, of in parts:
        optimizer.share = len(rows) / of
        if rows:
            mean_loss(model, rows).backward()
        optimizer.reduce()


def train(job: Job, comm: CollectiveCommunicator, folder: Path, every: int) -> None:
    kept = {"model": job.model, "optimizer": job.optimizer, "schedule": job.schedule}
    file, step = folder / "state.pt", 0
    if file.exists():
        state = torch.load(file)
        step = state["step"]
        for name, each in kept.items():
            each.load_state_dict(state[name])
    share(job.model, comm)
    ours = [
        epoch_parts[first : first + ACCUMULATE]
        for epoch in range(EPOCHS)
        for epoch_parts in [parts(shuffled(epoch), BATCH, comm.rank, comm.size)]
        for first in range(0, len(epoch_parts), ACCUMULATE)
    ]
    for together in ours[step:]:
        take_step(job.model, job.optimizer, together, comm, MAX_NORM)
        job.schedule.step()
        step += 1
        if comm.rank == 0 and step % every == 0:
            torch.save({"step": step} | {name: each.state_dict() for name, each in kept.items()}, folder / "new")
            (folder / "new").replace(file)
