"""The program of torchrun for ``bench launch``: one step of DDP over Gloo, with the model and data of `sync_sgd`."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from farandole.data import datasets
from farandole.models.classifiers import mlp

BATCH = 64  # samples of all ranks


def main() -> None:
    dist.init_process_group("gloo")
    train = datasets.split(datasets.load("digits"), 0).train
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    inputs, targets = torch.from_numpy(train.inputs[part]), torch.from_numpy(train.targets[part])
    model = DistributedDataParallel(mlp(inputs.shape[1:], 10, hidden=128, depth=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
