"""A user's own loop on all ranks, compared with the same loop in one process: the parameters after every step.

The model has features of real ones: tied weights, a frozen layer, a branch that few samples take, a sparse embedding,
parameters in two groups; the loop has a schedule, a bound on the gradient's norm, and gradients added up over batches.
"""

import copy
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole import OwnLoop
from farandole.data.sampler import EpochSampler, steps_per_epoch
from farandole.data.shares import equal_shares, slices

SAMPLES, BATCH, EPOCHS, WORDS = 45, 14, 3, 11
KINDS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


class Model(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6, sparse=sparse)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.hidden = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.hidden.weight
        self.rare = nn.Linear(6, 6)
        self.never = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(6)

    def forward(self, words: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        x = self.hidden(torch.tanh(self.frozen(self.words(words).mean(dim=1))))
        if flags.any():  # no rank knows whether another one takes this branch
            x = x + flags[:, None] * self.rare(x)
        return self.norm(self.tied(x))


noise = np.random.default_rng(0)
DATA = {
    "words": noise.integers(WORDS, size=(SAMPLES, 4)),
    "flags": (noise.random(SAMPLES) < 0.06).astype(np.float64),
    "target": noise.standard_normal((SAMPLES, 6)),
}


def prepared(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    norms = list(model.norm.parameters())
    others = [each for name, each in model.named_parameters() if not name.startswith("norm.")]
    return KINDS[kind](
        [{"params": others}, {"params": norms, "lr": 0.3, "weight_decay": 0.0}], lr=0.1, weight_decay=0.01
    )


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return mse_loss(model(batch["words"], batch["flags"]), batch["target"])


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


def alone(model: nn.Module, kind: str, ranks: int, every: int, max_norm: float) -> list[torch.Tensor]:
    """Return the parameters after each batch, by torch in one process; each batch is that of all ranks."""
    optimizer = prepared(kind, model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    shares, epoch = equal_shares(SAMPLES, ranks), steps_per_epoch(SAMPLES, BATCH)
    samplers = [EpochSampler(share, epoch, 0, rank) for rank, share in enumerate(shares)]
    seen = []
    for step in range(EPOCHS * epoch):
        rows = np.concatenate(
            [part.start + next(sampler) for part, sampler in zip(slices(shares), samplers, strict=True)]
        )
        (loss_of(model, {name: torch.from_numpy(part[rows]) for name, part in DATA.items()}) / every).backward()
        if (step + 1) % every == 0:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seen.append(vector(model))
    return seen


kind, every, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
with OwnLoop(out=out / f"{kind}-{every}", wait_timeout=30) as loop:
    torch.manual_seed(loop.world.rank)  # so that only `share` can make the models equal
    model = loop.share(Model(sparse=True).double())
    dense = Model(sparse=False).double()
    dense.load_state_dict(model.state_dict())
    expected = alone(copy.deepcopy(dense), kind, loop.world.size, every, max_norm=0.5)
    optimizer = loop.optimizer(prepared(kind, model), every=every, max_norm=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    apart, messages, before = [], [], loop.world.comm.messages_sent
    for batch in loop.batches(DATA, BATCH, epochs=EPOCHS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        if (loop.step + 1) % every == 0:
            schedule.step()
        loop.log(loss, lr=schedule.get_last_lr()[0])
        apart.append(float((vector(model) - expected[loop.step]).abs().max()))
        messages.append(loop.world.comm.messages_sent - before)
        before = loop.world.comm.messages_sent
    found = loop.world.control.gather((max(apart), messages))
if loop.world.rank == 0:
    untouched = torch.equal(model.never.weight, dense.never.weight) and torch.equal(
        model.frozen.weight, dense.frozen.weight
    )
    print(
        json.dumps({
            "apart": max(each for each, _ in found), "messages": found[0][1], "untouched": untouched,
            "moved": float((vector(model) - vector(dense)).abs().max()), "pid": os.getpid(),
        })
    )  # fmt: skip
