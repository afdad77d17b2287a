"""The same loop under each method of `OwnLoop`, compared with the method in one process after every step."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole import OwnLoop
from farandole.data.elastic_sampler import ElasticSampler
from farandole.data.sampler import steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.decentralised.mixing import mixing_matrix
from farandole.decentralised.topologies import topology

SAMPLES, BATCH, EPOCHS = 53, 15, 3
STEPS = EPOCHS * steps_per_epoch(SAMPLES, BATCH)
noise = np.random.default_rng(0)
X, Y = noise.standard_normal((SAMPLES, 5)), noise.standard_normal((SAMPLES, 2))


def new_model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().cpu().reshape(-1) for each in model.parameters()])


def set_vector(model: nn.Module, values: torch.Tensor) -> None:
    nn.utils.vector_to_parameters(values.clone(), model.parameters())


class Copies:
    """P models in one process, each with a separate optimizer."""

    def __init__(self, first: nn.Module, count: int) -> None:
        self.models = [new_model() for _ in range(count)]
        for model in self.models:
            model.load_state_dict(first.state_dict())
        self.optimizers = [new_optimizer(model) for model in self.models]
        self.sampler = ElasticSampler(equal_shares(SAMPLES, count), BATCH, seed=0)

    def gradients(self, weighted: bool) -> list[float]:
        """Compute each copy's gradient on its part of the next batch; return the parts' shares of the batch."""
        parts = next(self.sampler)
        shares = [len(rows) / sum(map(len, parts)) for rows in parts]
        for model, optimizer, rows, share in zip(self.models, self.optimizers, parts, shares, strict=True):
            optimizer.zero_grad()
            loss = mse_loss(model(torch.from_numpy(X[rows])), torch.from_numpy(Y[rows]))
            (loss * (share * len(parts) if weighted else 1)).backward()
        return shares


def local_sgd(first: nn.Module, ranks: int, period: int, alpha: float) -> list[list[torch.Tensor]]:
    """Return each copy's parameters when the next batch begins, and at the end their mean."""
    copies, seen, shares = Copies(first, ranks), [], []

    def average(alpha: float) -> None:
        weights = torch.tensor(shares, dtype=torch.float64).mean(dim=0) if shares else last[0]
        last[:] = [weights]
        mean = sum(weight * vector(model) for weight, model in zip(weights, copies.models, strict=True))
        for model in copies.models:
            set_vector(model, (1 - alpha) * vector(model) + alpha * mean)
        shares.clear()

    last: list[torch.Tensor] = []
    for step in range(STEPS):
        seen.append([vector(model) for model in copies.models])
        shares.append(copies.gradients(weighted=False))
        for optimizer in copies.optimizers:
            optimizer.step()
        if (step + 1) % period == 0:
            average(alpha)
    if shares or alpha < 1:
        average(1.0)
    return [*seen, [vector(model) for model in copies.models]]


def diloco(first: nn.Module, ranks: int, period: int, outer_lr: float, momentum: float) -> list[list[torch.Tensor]]:
    """As `local_sgd`; the outer optimizer is torch's SGD with Nesterov momentum."""
    copies, seen, shares = Copies(first, ranks), [], []
    common = nn.Parameter(vector(first).clone())
    outer = torch.optim.SGD([common], lr=outer_lr, momentum=momentum, nesterov=momentum > 0)
    for step in range(STEPS):
        seen.append([vector(model) for model in copies.models])
        shares.append(copies.gradients(weighted=False))
        for optimizer in copies.optimizers:
            optimizer.step()
        if (step + 1) % period == 0 or step + 1 == STEPS:
            weights = torch.tensor(shares, dtype=torch.float64).mean(dim=0)
            mean = sum(weight * vector(model) for weight, model in zip(weights, copies.models, strict=True))
            common.grad = common.detach() - mean
            outer.step()
            for model in copies.models:
                set_vector(model, common.detach())
            shares.clear()
    return [*seen, [vector(model) for model in copies.models]]


def dpsgd(first: nn.Module, ranks: int, graph: str, every: int) -> list[list[torch.Tensor]]:
    copies, seen, rounds = Copies(first, ranks), [], 0
    for step in range(STEPS):
        seen.append([vector(model) for model in copies.models])
        copies.gradients(weighted=True)
        for optimizer in copies.optimizers:
            optimizer.step()
        if (step + 1) % every == 0:
            weights = torch.from_numpy(mixing_matrix(topology(graph, ranks), rounds))
            mixed = weights @ torch.stack([vector(model) for model in copies.models])
            for model, values in zip(copies.models, mixed, strict=True):
                set_vector(model, values)
            rounds += 1
    mean = torch.stack([vector(model) for model in copies.models]).mean(dim=0)
    return [*seen, [mean] * ranks]


def in_step(first: nn.Module, ranks: int) -> list[list[torch.Tensor]]:
    """One model that steps along the mean gradient of the whole batch."""
    copies, seen = Copies(first, ranks), []
    model, optimizer = copies.models[0], copies.optimizers[0]
    for _ in range(STEPS):
        seen.append([vector(model)])
        rows = np.concatenate(next(copies.sampler))
        optimizer.zero_grad()
        mse_loss(model(torch.from_numpy(X[rows])), torch.from_numpy(Y[rows])).backward()
        optimizer.step()
    return [*seen, [vector(model)]]


method, options, out = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
with OwnLoop(method, out=out, wait_timeout=30, **({"device": "cpu"} | options)) as loop:
    torch.manual_seed(loop.world.rank)
    model = loop.share(new_model())
    slot, slots = loop.method.slot  # after a death other ranks have it, but all copies are equal then
    if method == "local_sgd":
        expected = local_sgd(model, slots, options["period"], options.get("alpha", 1.0))
    elif method == "diloco":
        expected = diloco(model, slots, options["period"], options["outer_lr"], options["outer_momentum"])
    elif method == "dpsgd":
        expected = dpsgd(model, slots, options["topology"], options.get("mixing_every", 1))
    else:
        expected, slot = in_step(model, slots), 0
    optimizer = loop.optimizer(new_optimizer(model))
    loop.test((X, Y), error=lambda model, batch: (model(batch[0]) - batch[1]).abs())
    apart, steps = 0.0, []
    for x, y in loop.batches((X, Y), BATCH, epochs=EPOCHS):
        if method != "ssp":
            apart = max(apart, float((vector(model) - expected[loop.step][slot]).abs().max()))
        steps.append(loop.step)
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        loop.log(loss)
if method != "ssp" and (steps or method != "backup"):
    apart = max(apart, float((vector(model) - expected[-1][slot]).abs().max()))
moved = float((vector(model) - expected[0][slot]).abs().max())
with torch.no_grad():
    error = float((model.cpu()(torch.from_numpy(X)) - torch.from_numpy(Y)).abs().mean())
(out / f"rank-{loop.world.rank}.json").write_text(
    json.dumps({"apart": apart, "steps": steps, "moved": moved, "error": error})
)
