"""Lab 16: a training loop of one process, made distributed by hand.

Complete the five functions, then: farandole lab check 16
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from farandole_tools.lab.single_process import Job, Part

if TYPE_CHECKING:
    from farandole_tools.lab.collective_calls import CollectiveCommunicator


def share(model: nn.Module, comm: CollectiveCommunicator) -> None:
    """Give all ranks the parameters and buffers of rank 0's model, by one broadcast. Collective.

    The parameters stay the same objects, since an optimizer holds them already.

    Args:
        model: this rank's. On each rank it has other values; the names and shapes are the same.
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.broadcast(array, source)  fills a numpy array on all ranks with that of rank `source`
            comm.all_reduce(array)         replaces a numpy array of floats by its sum over all ranks
    """
    raise NotImplementedError


def parts(order: Sequence[int], batch: int, rank: int, size: int) -> list[Part]:
    """Divide an epoch among the ranks: return what rank `rank` of `size` has of each batch.

    The batches are those of one process: `batch` rows each, in the given order, and perhaps fewer in the last one.
    Each row of a batch is in one rank's part. The parts of a batch differ by one row at most, and some are empty if
    there are more ranks than rows.

    Args:
        order: all rows, in the order in which the epoch uses them; the same on all ranks.
        batch: the number of rows of a batch, of all ranks together.

    Returns:
        One Part(rows, of) for each batch of the epoch: this rank's rows, and the number of rows of the whole batch.
    """
    raise NotImplementedError


def mean_gradient(model: nn.Module, parts: Sequence[Part], comm: CollectiveCommunicator) -> None:
    """Compute the gradient that one process has of these whole batches, on all ranks. Collective.

    One process computes the mean loss of each batch, and the mean of these over the batches. Afterwards the `grad` of
    every parameter is the same here, on all ranks, and None where it is None there: that is, if no rank has used the
    parameter. Nothing is sent but one vector, in one all_reduce.

    Args:
        model: the same on all ranks; every `grad` is None.
        parts: this rank's part of each of the batches; `mean_loss(model, rows)` is the mean loss over some rows.
    """
    raise NotImplementedError


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    parts: Sequence[Part],
    comm: CollectiveCommunicator,
    max_norm: float,
) -> None:
    """Take the step that one process takes for these whole batches, alike on all ranks. Collective.

    Args:
        parts: this rank's part of each batch whose gradients are added up for the step.
        max_norm: the bound of the gradient's norm, which `torch.nn.utils.clip_grad_norm_` applies in one process.
    """
    raise NotImplementedError


def train(job: Job, comm: CollectiveCommunicator, folder: Path, every: int) -> None:
    """Train as `single_process.train` does, on all ranks, and continue from the last saved state. Collective.

    After `every` steps, after twice as many, and so on, the state is saved with torch.save: what it takes to continue
    as if nothing had happened, on any number of ranks. A process may be killed at any moment, also while it saves. Then
    all are started anew, with the same folder and a new job.

    Args:
        job: this rank's job.model, job.optimizer and job.schedule, drawn at random and different on each rank. Rank 0's
            model counts, unless a state has been saved.
        folder: exists, is empty at first, and is the same for all ranks.
    """
    raise NotImplementedError
