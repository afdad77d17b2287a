"""Divided training and torch's FSDP2 (`fully_shard`, over gloo), in the same ranks: parameters after every step.

A plain one; in bfloat16 with float32 parts; in groups that hold copies, with a clipped gradient. The answer:
what → how far this project's parameters and FSDP2's are apart at most, and how far they have moved.
"""

import json
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss

from farandole.collectives.executor import run
from farandole.collectives.ring import ALL_GATHER
from farandole.data.batch import Batch
from farandole.data_parallel.process_group import join_process_group
from farandole.models.optimizers import maker
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.sharded.optimizers import on_parts
from farandole.sharded.options import Sharding
from farandole.sharded.training import ShardedSGD

STEPS, ROWS, WIDTH, NORM = 3, 6, 9, 0.05
OVER = int(sys.argv[1])  # ranks of a group that divides the model


def fresh(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(1)
    first = [nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)]
    return nn.Sequential(*first, nn.Tanh(), *(nn.Linear(WIDTH, WIDTH) for _ in range(2))).to(dtype)


def batches(dtype: torch.dtype, rank: int) -> list[torch.Tensor]:
    noise = torch.Generator().manual_seed(rank)
    return [torch.randn(ROWS, WIDTH, generator=noise, dtype=torch.float64).to(dtype) for _ in range(STEPS)]


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return mse_loss(model(batch), batch)


def by_torch(dtype: torch.dtype, mesh: DeviceMesh, sharding: Sharding) -> list[np.ndarray]:
    model = fresh(dtype)
    for layer in (*(layer for layer in model if list(layer.parameters())), model):
        policy = MixedPrecisionPolicy()
        if sharding.half:
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32 if layer is model else None)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    if sharding.half:  # Adam makes a full step of a gradient that is nearly 0, too
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen = []
    for batch in batches(dtype, dist.get_rank()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        if sharding.max_norm:
            nn.utils.clip_grad_norm_(model.parameters(), sharding.max_norm)
        optimizer.step()
        whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in model.parameters()]
        seen.append(torch.cat([each.detach().reshape(-1) for each in whole]).numpy())
    return seen


def by_us(world: World, dtype: torch.dtype, sharding: Sharding) -> list[np.ndarray]:
    name, lr = ("sgd", 0.1) if sharding.half else ("adam", 0.01)
    strategy = ShardedSGD(world, fresh(dtype), loss_of, on_parts(maker(name, lr)), sharding, name)
    seen = []
    for batch in batches(dtype, world.rank):
        strategy.step(batch, 1 / world.size)
        wholes = []
        for unit in strategy.units:
            whole = np.zeros(unit.numel, unit.shard.numpy().dtype)
            whole[unit.own] = unit.shard.numpy()
            run(ALL_GATHER, unit.group, whole)
            wholes.append(whole)
        seen.append(np.concatenate(wholes))
    strategy.finish()
    return seen


answer = {}
with World.start(RunOptions(wait_timeout=60)) as world:
    join_process_group(world, 60)
    all_ranks = init_device_mesh("cpu", (world.size,))
    groups = init_device_mesh("cpu", (world.size // OVER, OVER), mesh_dim_names=("copies", "parts"))
    for name, dtype, mesh, sharding in (
        ("plain", torch.float64, all_ranks, Sharding()),
        ("prefetch", torch.float64, all_ranks, Sharding(prefetch=True)),
        ("half", torch.float32, all_ranks, Sharding(half=True, prefetch=True)),
        ("groups", torch.float64, groups, Sharding(over=OVER, max_norm=NORM)),
    ):
        theirs = by_torch(dtype, mesh, sharding)
        ours = by_us(world, dtype, sharding)
        apart = [float(np.abs(one - other).max()) for one, other in zip(ours, theirs, strict=True)]
        answer[name] = {"apart": max(apart), "moved": float(np.abs(ours[-1] - ours[0]).max())}
    if world.rank == 0:
        print(json.dumps(answer))
