"""Lab 16: make the training loop of one process distributed, by hand.

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
        model: this rank's model. The values differ between ranks; the names and shapes are the same.
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.broadcast(array, source)  fills a numpy array on all ranks with the one of rank `source`
            comm.all_reduce(array)         replaces a numpy array of floats with its sum over all ranks
    """
    raise NotImplementedError


def parts(order: Sequence[int], batch: int, rank: int, size: int) -> list[Part]:
    """Divide an epoch among the ranks: return the part of each batch that rank `rank` of `size` processes.

    The batches are those of one process: `batch` rows each, in the given order; the last one may have fewer.
    Each row of a batch is in exactly one rank's part. The parts of a batch differ by one row at most, and some are
    empty if there are more ranks than rows.

    Args:
        order: all rows, in the order in which the epoch uses them; the same on all ranks.
        batch: the number of rows of a batch, over all ranks together.

    Returns:
        One Part(rows, of) for each batch of the epoch: this rank's rows, and the number of rows of the whole batch.
    """
    raise NotImplementedError


def mean_gradient(model: nn.Module, parts: Sequence[Part], comm: CollectiveCommunicator) -> None:
    """Compute, on all ranks, the gradient that one process computes for these whole batches. Collective.

    One process computes the mean loss of each batch, and the mean of these over the batches. Afterwards the `grad` of
    every parameter equals that of one process, on all ranks. It is None where it is None in one process, that is, if no
    rank has used the parameter. Send only one vector, in one all_reduce.

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
    """Take the same step as one process takes for these whole batches, on all ranks. Collective.

    Args:
        parts: this rank's part of each batch whose gradient enters this step.
        max_norm: the bound on the gradient's norm, which one process applies with `torch.nn.utils.clip_grad_norm_`.
    """
    raise NotImplementedError


def train(job: Job, comm: CollectiveCommunicator, folder: Path, every: int) -> None:
    """Train as `single_process.train` does, on all ranks, and continue from the last saved state. Collective.

    After every `every` steps, save with torch.save the whole state that is needed to continue as if there had been no
    interruption, on any number of ranks. A process may be killed at any moment, also while it saves. Then all ranks are
    restarted, with the same folder and a new job.

    Args:
        job: this rank's job.model, job.optimizer and job.schedule. The model's initial values are random and different
            on each rank. Training starts from rank 0's model, unless a state has been saved.
        folder: where to save the state. It exists, is empty at first, and is the same for all ranks.
    """
    raise NotImplementedError
