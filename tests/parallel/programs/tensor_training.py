"""Split models compared with the unsplit one after every step, in both float types."""

import json

import torch
from torch import nn
from torch.nn import functional

from farandole.model_parallel.tensor.cross_entropy import cross_entropy
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.split import split_model, whole
from farandole.models.classifiers import mlp
from farandole.models.transformer import transformer
from farandole.runtime.communicator import gather_text
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

KINDS = {"float64": torch.float64, "float32": torch.float32}
SAMPLES, CONTEXT, CLASSES, STEPS, LR = 6, 12, 23, 5, 0.2


def deep(shape, classes):
    """Four linear layers: a pair, a single one, a head."""
    layers = [layer for width in (30, 20, 25) for layer in (nn.LazyLinear(width), nn.Tanh())]
    return nn.Sequential(nn.Flatten(), *layers, nn.LazyLinear(classes))


MODELS = {
    "transformer": lambda: transformer((CONTEXT,), CLASSES, hidden=112, depth=2),
    "mlp": lambda: mlp((1, 1, CONTEXT), CLASSES, hidden=32),
    "deep": lambda: deep((1, 1, CONTEXT), CLASSES),
}


def fresh_model(name, kind):
    torch.manual_seed(3)
    model = MODELS[name]()
    model(inputs_of(name, 0))  # lazy layers learn their shape here
    return model.to(kind)


def inputs_of(name, step):
    generator = torch.Generator().manual_seed(step)
    if name == "transformer":
        return torch.randint(CLASSES, (SAMPLES, CONTEXT), generator=generator)
    return torch.randn(SAMPLES, 1, 1, CONTEXT, generator=generator)


def targets_of(name, step):
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(CLASSES, (SAMPLES, CONTEXT) if name == "transformer" else (SAMPLES,), generator=generator)


def vector(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def run(name, kind, group):
    single = fresh_model(name, kind)
    start = vector(single)
    model = split_model(fresh_model(name, kind), group)
    optimizers = [torch.optim.SGD(each.parameters(), lr=LR) for each in (single, model)]
    difference = loss_difference = 0.0
    for step in range(STEPS):
        inputs, targets = inputs_of(name, step), targets_of(name, step)
        if name != "transformer":
            inputs = inputs.to(kind)
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = functional.cross_entropy(single(inputs).flatten(0, -2), targets.flatten())
        expected.backward()
        loss = cross_entropy(model(inputs), targets, CLASSES, group)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        difference = max(difference, (vector(whole(model, group)) - vector(single)).abs().max().item())
        loss_difference = max(loss_difference, (loss - expected).abs().item())
    divided = divisions(model)
    replicated = [p.detach().numpy().tobytes().hex() for n, p in model.named_parameters() if n not in divided]
    copies = gather_text(world.control, json.dumps([*replicated, loss.item()]))
    unsplit = whole(model, group)
    assert [type(layer) for layer in unsplit.modules() if not isinstance(layer, nn.Sequential)] == [
        type(layer) for layer in single.modules() if not isinstance(layer, nn.Sequential)
    ]
    return {
        "difference": difference,
        "loss difference": loss_difference,
        "moved": (vector(single) - start).abs().max().item(),
        "copies": len(set(copies)),
        "whole model's outputs": (unsplit(inputs) - single(inputs)).abs().max().item(),
    }


with World.start(RunOptions(wait_timeout=30)) as world:
    group = TensorGroup(world.comm, world)
    answer = {label: {name: run(name, kind, group) for name in MODELS} for label, kind in KINDS.items()}
    if world.rank == 0:
        print(json.dumps(answer))
