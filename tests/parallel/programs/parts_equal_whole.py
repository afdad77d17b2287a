"""A model spread over the ranks against the same model in one process: parameters compared after every update.

Argument: a JSON list of cases, each with the fields of `Layout`, and as "options" those of the run.
"""

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from oracle import found_by_one
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.data.sampler import EpochSampler
from farandole.data.shares import slices
from farandole.model_parallel.accounting import account
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.options import ModelParallelOptions
from farandole.model_parallel.parts import DTYPES, Parts
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.versions import StashingStage
from farandole.models import choices
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

SEED, STEPS = 3, 4
DEFAULTS = {"data": "digits", "hidden": 32, "depth": 3, "batch": 50, "lr": 0.3, "precision": "float64", "steps": STEPS}

TORCH = {"sgd": torch.optim.SGD, "momentum": partial(torch.optim.SGD, momentum=0.9), "adam": torch.optim.Adam}


def single(options: ModelParallelOptions) -> nn.Sequential:
    torch.manual_seed(SEED)
    return choices.build(options).to(DTYPES[options.precision])


def vector(model: nn.Module) -> Tensor:
    return torch.cat([torch.empty(0), *(parameter.detach().reshape(-1) for parameter in model.parameters())])


def batches(options: ModelParallelOptions, parts: Parts) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the samples that all pipelines together use in each step."""
    train = datasets.split(datasets.load(options.data), options.seed).train
    shares, epoch = parts.shard.shares, parts.shard.epoch
    samplers = [EpochSampler(share, epoch, options.seed, number) for number, share in enumerate(shares)]
    for _ in range(options.steps):
        pairs = zip(slices(shares), samplers, strict=True)
        batch = train[np.concatenate([part.start + next(sampler) for part, sampler in pairs])]
        inputs = torch.from_numpy(batch.inputs)
        kind = DTYPES[options.precision] if inputs.is_floating_point() else None
        yield inputs.to(kind), torch.from_numpy(batch.targets)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, -2), targets.flatten())


def unsplit(options: ModelParallelOptions, parts: Parts) -> list[NDArray[np.float64]]:
    """Return the whole model's parameters at first and after each step, by torch's own optimizer."""
    model = single(options)
    flat = FlatBuffers(model)
    values = flat.values.detach()
    values.grad = flat.gradients
    move = TORCH[options.optimizer]([values], lr=options.lr)
    seen = [vector(model).double().numpy()]
    for inputs, targets in batches(options, parts):
        flat.zero_gradients()
        loss_of(model(inputs), targets).backward()
        move.step()
        seen.append(vector(model).double().numpy())
    return seen


def synchronous(options: ModelParallelOptions, parts: Parts) -> dict[str, Any]:
    """Return the largest difference from the unsplit model after any step."""
    expected = found_by_one(parts.world, lambda: unsplit(options, parts))
    difference = 0.0
    for step in range(options.steps):
        parts.pipeline.run(parts.layout.micro_batches, parts.shard.cut(step, parts.layout.micro_batches, parts.loss))
        if gathered := parts.gather():
            difference = max(difference, np.abs(vector(gathered).double().numpy() - expected[step + 1]).max())
    return {"difference": difference, "moved": np.abs(expected[-1] - expected[0]).max()}


def delayed(options: ModelParallelOptions, parts: Parts) -> dict[str, Any]:
    """Compare PipeDream with one process that keeps all versions and uses the right one for each stage."""
    stage, stages = parts.stage, parts.layout.pipeline
    assert isinstance(stage, StashingStage)
    seen: list[Tensor] = []
    update = parts.optimizer.step

    def and_remember() -> None:
        update()
        seen.append(vector(parts.module))

    parts.pipeline.update = and_remember
    parts.pipeline.run(options.steps, parts.shard.stream(options.steps, parts.loss, lambda step, loss: None))

    model = single(options)
    bounds = parts.plan.bounds
    owner = {name: next(s for s in range(stages) if int(name.split(".")[0]) < bounds[s + 1])
             for name, _ in model.named_parameters()}  # fmt: skip
    versions = [{name: parameter.detach().clone() for name, parameter in model.named_parameters()}]
    for batch, (inputs, targets) in enumerate(batches(options, parts)):
        vertical = parts.layout.vertical_sync
        delays = {name: stages - (0 if vertical else owner[name]) - 1 for name in owner}
        used = {name: versions[max(0, batch - delays[name])][name].clone().requires_grad_() for name in owner}
        mean = loss_of(functional_call(model, used, (inputs,)), targets)
        gradients = dict(zip(used, torch.autograd.grad(mean, list(used.values())), strict=True))
        versions.append({name: versions[-1][name] - options.lr * gradients[name] for name in owner})
    mine = [name for name in owner if owner[name] == parts.place["pipeline"]]
    expected = [
        torch.cat([version[name].reshape(-1) for name in mine]) if mine else torch.empty(0) for version in versions[1:]
    ]
    difference = max(float((a - b).abs().max()) if len(a) else 0.0 for a, b in zip(seen, expected, strict=True))
    undelayed = single(options)
    for inputs, targets in batches(options, parts):
        gradients = torch.autograd.grad(loss_of(undelayed(inputs), targets), list(undelayed.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(undelayed.parameters(), gradients, strict=True):
                parameter -= options.lr * gradient
    last = torch.cat([tensor.reshape(-1) for tensor in versions[-1].values()])
    return {
        "difference": difference,
        "moved": float((last - torch.cat([v.reshape(-1) for v in versions[0].values()])).abs().max()),
        "delay_matters": float((last - vector(undelayed)).abs().max()),
        "forward_versions": list(stage.forward_versions.values()),
        "backward_versions": list(stage.backward_versions.values()),
        "most_versions": stage.most_versions,
    }


with World.start(RunOptions(wait_timeout=30, seed=SEED)) as world:
    answers = []
    for case in json.loads(sys.argv[1]):
        options = ModelParallelOptions(seed=SEED, **(DEFAULTS | case.pop("options", {})))
        schedule = choose(case.pop("schedule", "naive"), case.pop("chunks", 2))
        layout = Layout(schedule=schedule, **case)
        torch.manual_seed(SEED)
        parts = Parts(world, options, layout)
        before = world.comm.messages_sent
        found = (synchronous if schedule.flushes else delayed)(options, parts)
        found |= {"schedule": schedule.name, "memory": account(parts), "bounds": parts.plan.bounds}
        found |= {"left": len(parts.stage.kept), "ranks_values": vector(parts.module).sum().item()}
        answers.append(found)
    texts = gather_text(world.control, json.dumps(answers))
    if world.rank == 0:
        print(json.dumps([json.loads(text) for text in texts]))
