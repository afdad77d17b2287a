"""Sharded evaluation: the count of one process, whatever the shares; every sample is judged once."""

import json

import numpy as np
import torch
from torch import nn

from farandole.data.datasets import Dataset
from farandole.data_parallel.evaluation import accuracy, right_answers, sharded_accuracy
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

SIZES = (7, 180, 1100)  # one a rank; more than a batch for one


class Counting(nn.Module):
    """A model that remembers which samples it has seen; its answers are right for every third one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        numbers = inputs[:, 0].long()
        self.seen += numbers.tolist()
        return nn.functional.one_hot((numbers % 3 == 0).long(), 2).float()


with World.start(RunOptions(wait_timeout=30)) as world:
    for size in SIZES:
        numbers = np.arange(size, dtype=np.float32)[:, None]
        dataset = Dataset(numbers, np.ones(size, np.int64))
        model = Counting()
        found = sharded_accuracy(model, dataset if world.rank == 0 else None, world)
        assert found == accuracy(Counting(), dataset, world.device) == -(-size // 3) / size
        everybody = sorted(number for seen in world.control.allgather(model.seen) for number in seen)
        assert everybody == list(range(size)), "each sample once, by one rank"
        assert max(world.control.allgather(len(model.seen))) == -(-size // world.size)
        assert right_answers(Counting(), dataset[:0], world.device) == 0
if world.rank == 0:
    print(json.dumps({"sizes": len(SIZES)}))
