"""Divided training against one process on the whole batch: parameters after every step, bytes and memory.

Each of several models, in each stage and its variants, for a few steps of another optimizer. The answer: model →
variant → what was found.
"""

import json
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from oracle import found_by_one
from torch import nn
from torch.nn.functional import cross_entropy

from farandole.data.shares import equal_shares, slices
from farandole.models.muon import hidden
from farandole.models.optimizers import MakeOptimizer, maker
from farandole.models.recomputation_options import RecomputationOptions
from farandole.models.transformer import transformer
from farandole.runtime import devices
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World
from farandole.sharded import muon
from farandole.sharded.optimizers import on_parts
from farandole.sharded.options import Sharding
from farandole.sharded.training import ShardedSGD
from farandole.sharded.unit import MakeForUnit

STEPS, BATCH, CLASSES, CHARACTERS = 4, 30, 5, 97
# For the transformer below: each block is computed again, and its inputs are offloaded.
SPARING = RecomputationOptions(
    model="transformer", data="pydoc", hidden=16, depth=2, recompute="full", offload_activations="host"
)


class Branches(nn.Module):
    """Tied and frozen parameters, a list of modules, a parameter beside it, and a branch that odd steps leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.BatchNorm1d(6)) for _ in range(3)])
        self.shift = nn.Parameter(torch.zeros(6))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.twice = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.calls = 0

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        x = self.embedding(numbers).mean(dim=1) + self.shift
        for number, block in enumerate(self.blocks):
            if number != 1 or self.calls % 2:
                x = x + block(x)
        return self.head(self.twice(torch.tanh(self.twice(self.frozen(x)))))


def perceptron() -> nn.Module:
    layers = [layer for _ in range(7) for layer in (nn.Linear(24, 24), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(24, CLASSES))


def inputs_of(name: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(step)
    if name in ("perceptron", "muon"):
        return torch.randn(BATCH, 24, generator=noise).double(), torch.randint(CLASSES, (BATCH,), generator=noise)
    words = CHARACTERS if name == "transformer" else 11
    numbers = torch.randint(words, (BATCH, 8), generator=noise)
    return numbers, numbers if name == "transformer" else numbers[:, 0]


class MuonAndAdamW:
    """torch's Muon, with directions computed in float64."""

    def __init__(self, model: nn.Module) -> None:
        torch.Tensor.bfloat16 = lambda self: self  # type: ignore[method-assign,assignment]
        matrices = hidden(model)
        others = [each for each in model.parameters() if each not in matrices]
        self.both = [
            torch.optim.Muon(list(matrices), lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=0.02, weight_decay=0.1),
        ]

    def zero_grad(self) -> None:
        for each in self.both:
            each.zero_grad()

    def step(self) -> None:
        for each in self.both:
            each.step()


def alone(make: MakeOptimizer) -> Callable[[nn.Module], MakeForUnit]:
    """Return an optimizer that treats each element separately."""
    return lambda _: on_parts(make)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


# The model, our optimizer of a unit, and torch's of the whole model.
MODELS = {
    "perceptron": (
        perceptron,
        alone(maker("adam", 0.01, decay=0.1)),
        lambda model: torch.optim.AdamW(trained(model), lr=0.01, weight_decay=0.1),
    ),
    "transformer": (
        lambda: transformer((8,), CHARACTERS, hidden=16, depth=2),
        alone(maker("momentum", 0.05, decay=0.1)),
        lambda model: torch.optim.SGD(trained(model), lr=0.05, momentum=0.9),
    ),
    "branches": (Branches, alone(maker("sgd", 0.1)), lambda model: torch.optim.SGD(trained(model), lr=0.1)),
    "muon": (perceptron, lambda model: muon.for_units(model, 0.02, decay=0.1), MuonAndAdamW),
}


def fresh(name: str, kind: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    return MODELS[name][0]().to(kind)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(batch[0]).movedim(-1, 1), batch[1])


def vector(parameters: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([each.detach().reshape(-1) for each in parameters]).double().numpy()


def by_one_process(name: str, ranks: int, kind: torch.dtype = torch.float64) -> list[np.ndarray]:
    """Return the parameters after each step. Each rank's part is normalised separately, as by BatchNorm."""
    model = fresh(name, kind)
    its = trained(model)
    decay = 0.1 if name == "transformer" else 0.0
    optimizer, seen = MODELS[name][2](model), [vector(its)]
    for step in range(STEPS):
        x, y = inputs_of(name, step)
        optimizer.zero_grad()
        if isinstance(model, Branches):
            calls = model.calls
        for part in slices(equal_shares(BATCH, ranks)):
            if isinstance(model, Branches):
                model.calls = calls
            (loss_of(model, (x[part], y[part])) * (part.stop - part.start) / BATCH).backward()
        with torch.no_grad():
            for each in its:
                each.mul_(1 - 0.05 * decay)
                if each.grad is None:  # torch would leave it where it is
                    each.grad = torch.zeros_like(each)
        optimizer.step()
        seen.append(vector(its))
    return seen


def largest_difference(strategy: ShardedSGD, expected: np.ndarray, places: dict[int, slice]) -> float:
    """Return the largest difference in this rank's parts of all units."""
    found = 0.0
    for unit in strategy.units:
        whole = np.concatenate([expected[places[id(each)]] for each in unit.parameters])
        found = max(found, np.abs(unit.shard.numpy() - whole[unit.own]).max(initial=0))
    return found


class Gathered:
    """Counts the bytes of all live gathered vectors, including those in autograd's graph."""

    def __init__(self) -> None:
        self.alive = self.most = self.after_forward = 0

    def empty(self, shape: list[int], dtype: torch.dtype, _: torch.device) -> torch.Tensor:
        """Replaces `devices.empty_on_host`: memory of numpy's, which reports when torch has released it."""
        array = np.empty(shape, np.dtype(str(dtype).removeprefix("torch.")))
        weakref.finalize(array, self._hold, -array.nbytes)
        self._hold(array.nbytes)
        return torch.from_numpy(array)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        found = loss_of(model, batch)
        self.after_forward = max(self.after_forward, self.alive)
        return found

    def _hold(self, nbytes: int) -> None:
        self.alive += nbytes
        self.most = max(self.most, self.alive)


def accumulated(world: World, sharding: Sharding, count: int, expected: np.ndarray) -> list[float]:
    """Train with `count` micro-batches; return the largest difference from one process, and the bytes of a step."""
    model = fresh("perceptron")
    parameters = list(model.parameters())
    ends = np.cumsum([0, *(each.numel() for each in parameters)])
    places = {id(each): slice(*ends[at : at + 2]) for at, each in enumerate(parameters)}
    strategy = ShardedSGD(world, model, loss_of, MODELS["perceptron"][1](model), sharding, "adam")
    strategy.accumulate, before, apart = count, world.comm.bytes_sent, 0.0
    for step in range(2):
        x, y = inputs_of("perceptron", step)
        strategy.step((x[own], y[own]), (own.stop - own.start) / BATCH)
        apart = max(apart, largest_difference(strategy, expected[step + 1], places))
    sent = sum(world.control.allgather(world.comm.bytes_sent - before)) / 2
    strategy.finish()
    assert strategy.memory()["measured"] == strategy.memory()["formula"]
    return [max(world.control.allgather(apart)), sent]


def in_float32(world: World, sharding: Sharding) -> float:
    """Return the largest difference of any parameter and step from one process that also trains in float32."""
    its = found_by_one(world, lambda: by_one_process("transformer", world.size, torch.float32))
    model, apart = fresh("transformer", torch.float32), 0.0
    parameters = list(model.parameters())
    ends = np.cumsum([0, *(each.numel() for each in parameters)])
    places = {id(each): slice(*ends[at : at + 2]) for at, each in enumerate(parameters)}
    strategy = ShardedSGD(world, model, loss_of, MODELS["transformer"][1](model), sharding, "momentum")
    for step in range(STEPS):
        x, y = inputs_of("transformer", step)
        strategy.step((x[own], y[own]), (own.stop - own.start) / BATCH)
        apart = max(apart, largest_difference(strategy, its[step + 1], places))
    strategy.finish()
    return max(world.control.allgather(apart))


def in_groups(world: World) -> None:
    """Hybrid sharding alone: stage and size of the groups → the largest difference, and the bytes of a step."""
    expected = found_by_one(world, lambda: by_one_process("perceptron", world.size))
    whole = sum(each.numel() for each in fresh("perceptron").parameters()) * 8
    sizes = [size for size in range(2, world.size) if world.size % size == 0]
    found = {
        f"{stage} {over}": accumulated(world, Sharding(stage, over), 2, expected)
        for stage in (1, 2, 3)
        for over in sizes
    }
    if world.rank == 0:
        print(json.dumps({"whole": whole, "found": found}))


def all_variants(world: World) -> None:
    """Every model in every stage."""
    answer: dict[str, dict[str, Any]] = {}
    expected_of_all: list[np.ndarray] = []
    for name, (_, make_optimizer, _) in MODELS.items():
        expected = found_by_one(world, lambda name=name: by_one_process(name, world.size))
        expected_of_all.append(expected)
        answer[name] = {}
        variants = {
            "1": Sharding(1), "2": Sharding(2), "3": Sharding(3), "prefetch": Sharding(prefetch=True),
            "disk": Sharding(offload="disk"), "groups": Sharding(over=2 if world.size == 4 else 1),
        }  # fmt: skip
        if name == "transformer":
            variants["full"] = Sharding(3)
        for variant, sharding in variants.items():
            model = fresh(name)
            places, begin = {}, 0
            for each in model.parameters():
                if each.requires_grad:
                    places[id(each)] = slice(begin, begin + each.numel())
                    begin += each.numel()
            kind = {"perceptron": "adam", "transformer": "momentum", "branches": "sgd"}.get(name, name)
            devices.empty_on_host = (gathered := Gathered()).empty
            options = SPARING if variant == "full" else None
            strategy = ShardedSGD(world, model, gathered.loss, make_optimizer(model), sharding, kind, options)
            sent, apart = world.comm.bytes_sent, 0.0
            for step in range(STEPS):
                x, y = inputs_of(name, step)
                strategy.step((x[own], y[own]), (own.stop - own.start) / BATCH)
                apart = max(apart, largest_difference(strategy, expected[step + 1], places))
            sent = world.comm.bytes_sent - sent
            alive = [gathered.most, gathered.after_forward]
            strategy.finish()
            digests = gather_text(world.control, sha256(model))
            of_all = [json.loads(text) for text in gather_text(world.control, json.dumps([apart, sent]))]
            memory = gather_text(world.control, json.dumps(strategy.memory()))
            units = {unit.name: unit.nbytes for unit in strategy.units}
            if world.rank == 0:
                answer[name][variant] = {
                    "apart": max(each[0] for each in of_all),
                    "sent": sum(each[1] for each in of_all),
                    "digests": sorted(set(digests)),
                    "moved": float(np.abs(expected[-1] - expected[0]).max()),
                    "memory": [json.loads(text) for text in memory],
                    "units": units,
                    "alive": alive,
                }
    variants = {"1": Sharding(1), "2": Sharding(2), "3": Sharding(3)}
    if world.size == 4:
        variants |= {"prefetch": Sharding(prefetch=True), "groups": Sharding(over=2)}
    answer["accumulated"] = {name: accumulated(world, each, 3, expected_of_all[0]) for name, each in variants.items()}
    answer["float32"] = {str(stage): in_float32(world, Sharding(stage)) for stage in (1, 3)}
    if world.rank == 0:
        print(json.dumps(answer))


with World.start(RunOptions(wait_timeout=30)) as world:
    own = slices(equal_shares(BATCH, world.size))[world.rank]
    (in_groups if sys.argv[1:] == ["in groups"] else all_variants)(world)
