"""How many bytes ZeRO moves between the card and the host in a step of each rank: only the parts that are needed."""

import json
from functools import partial

import torch
from torch import nn

from farandole.model_parallel.zero import ShardedOptimizer
from farandole.models.optimizers import SGD
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


def moved() -> tuple[int, int]:
    counts = torch.get_device_module("card").counts()
    return counts["bytes_out"], counts["bytes_in"]


def main() -> None:
    with World.start(RunOptions(device="auto", share_cards=True)) as world:
        flat = FlatBuffers(nn.Linear(7, 9).to(world.device))
        optimizer = ShardedOptimizer(world, world.comm, flat, partial(SGD, lr=0.1))
        flat.gradients.fill_(world.rank + 1)
        before, was = flat.values.cpu(), moved()
        optimizer.step()
        out, back = (now - then for now, then in zip(moved(), was, strict=True))
        whole = flat.values.nbytes
        own = optimizer.part(len(flat.values))
        own_bytes = (own.stop - own.start) * flat.values.itemsize
        assert out == whole + own_bytes, "the gradient, and the parameters that this rank has moved"
        assert back == own_bytes + (whole - own_bytes), "this rank's part of the sum, and the other ranks' parameters"
        assert torch.allclose(flat.values.cpu(), before - 0.1 * sum(range(1, world.size + 1)))
    if world.rank == 0:
        print(json.dumps({"out": out, "back": back}))


if __name__ == "__main__":
    main()
