"""Ranks that take different branches of a model: they would gather different units."""

import sys

import torch
from torch import nn

from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.sharded.optimizers import on_parts
from farandole.sharded.options import Sharding
from farandole.sharded.training import ShardedSGD


class Branches(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.rank, self.calls = rank, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.blocks[self.rank if self.calls == 3 else 0](x)


with World.start(RunOptions(wait_timeout=2)) as world:
    model = Branches(world.rank)
    strategy = ShardedSGD(
        world,
        model,
        lambda model, x: model(x).sum(),
        on_parts(maker("sgd", 0.1)),
        Sharding(prefetch=sys.argv[1] == "prefetch"),
        "sgd",
    )
    for _ in world.steps(5):
        strategy.step(torch.ones(3, 4), 1 / world.size)
