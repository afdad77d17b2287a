"""Sharded evaluation: the count of one process, whatever the shares; every sample is judged once."""

import json

import numpy as np
import torch
from torch import nn

from farandole import tasks
from farandole.data.datasets import Dataset
from farandole.data_parallel.evaluation import accuracy, judged_together
from farandole.models.options import TrainingOptions
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.tasks import Task, is_right

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


def mean_number(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    return float(batch[0].mean())


with World.start(RunOptions(wait_timeout=30)) as world:
    for size in SIZES:
        numbers = np.arange(size, dtype=np.float32)[:, None]
        dataset = Dataset(numbers, np.ones(size, np.int64))
        assert accuracy(Counting(), dataset, world.device) == -(-size // 3) / size
        own = Task(Counting, train=dataset, test=dataset, metrics={"accuracy": is_right, "mean": mean_number})
        for task, there in ((tasks.of(TrainingOptions()), world.rank == 0), (own, True)):
            model = Counting()
            found = judged_together(model, dataset if there else None, world, task)
            assert found["accuracy"] == -(-size // 3) / size
            everybody = sorted({number for seen in world.control.allgather(model.seen) for number in seen})
            assert everybody == list(range(size)), "each sample once, by one rank"
            assert max(world.control.allgather(len(model.seen))) == -(-size // world.size)
        assert abs(found["mean"] - (size - 1) / 2) < 1e-9, "a mean of parts is weighted by their samples"
if world.rank == 0:
    print(json.dumps({"sizes": len(SIZES)}))
