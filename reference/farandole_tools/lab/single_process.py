"""A training in one process: what lab 16 makes distributed.

It has what real ones have and what a distributed loop has to treat with care: a tied weight, a frozen layer, buffers, a
branch that few samples take, gradients added up over several batches, a bound on the gradient's norm, a schedule of the
learning rate, and a last batch that is smaller than the others. All in float64, so that only rounding differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

SAMPLES = 46
BATCH = 8  # rows of a batch; the last one of an epoch has 6
ACCUMULATE = 2  # batches whose gradients are added up for a step
EPOCHS = 2
BATCHES = math.ceil(SAMPLES / BATCH)  # of an epoch
STEPS_PER_EPOCH = math.ceil(BATCHES / ACCUMULATE)
STEPS = EPOCHS * STEPS_PER_EPOCH
MAX_NORM = 0.5  # bound of the gradient's norm

WORDS = 10
WIDTH = 4
RARE = 0  # a sample with this word first takes the branch

torch.set_num_threads(1)  # with so few numbers, threads only wait for each other

numbers = np.arange(SAMPLES)
PAIRS = torch.from_numpy(np.stack([numbers * 7 % 13 % WORDS, numbers * numbers % 11 % WORDS], axis=1))
PAIRS[:, 0] = PAIRS[:, 0].clamp(min=1)
PAIRS[[5, 18, 31], 0] = RARE
TARGETS = torch.from_numpy((numbers * 5 + numbers // 7) % WORDS)


class Part(NamedTuple):
    """One rank's part of a batch: these rows, of a batch that has `of` rows on all ranks together."""

    rows: Sequence[int]
    of: int


class Model(nn.Module):
    """Predicts a word from two words before it.

    The matrix `words` is used twice, at the input and at the output: it is one parameter with two names. `frozen` is
    not trained. `rare` is a branch for samples that begin with the word RARE. The buffers say in which order and how
    strongly the model sees its features. Each model draws them at random, as it does its parameters.
    """

    order: Tensor
    strength: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.hidden = nn.Linear(2 * WIDTH, WIDTH)
        self.rare = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.output.weight = self.words.weight
        self.register_buffer("order", torch.randperm(2 * WIDTH))
        self.register_buffer("strength", 0.5 + torch.rand(2 * WIDTH))
        self.double()

    def forward(self, pairs: Tensor) -> Tensor:
        features = self.frozen(self.words(pairs)).flatten(1)
        hidden = torch.tanh(self.hidden(features[:, self.order] * self.strength))
        is_rare = pairs[:, 0] == RARE
        if is_rare.any():  # else `rare` has no part in the result, and no gradient
            hidden = torch.where(is_rare[:, None], self.rare(hidden), hidden)
        return torch.as_tensor(self.output(hidden))


def mean_loss(model: nn.Module, rows: Sequence[int]) -> Tensor:
    """Return the mean loss over these rows of the data."""
    chosen = torch.as_tensor(rows, dtype=torch.long)
    return cross_entropy(model(PAIRS[chosen]), TARGETS[chosen])


def shuffled(epoch: int) -> list[int]:
    """Return all rows, in the order of that epoch."""
    return [int(row) for row in np.random.default_rng(epoch).permutation(SAMPLES)]


class Job:
    """A training: a model, drawn at random by `seed`, its optimizer and its schedule."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = Model()
        trained = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=0.05, weight_decay=0.1)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)


def train(job: Job) -> None:
    """Train in one process."""
    for epoch in range(EPOCHS):
        order = shuffled(epoch)
        batches = [order[start : start + BATCH] for start in range(0, SAMPLES, BATCH)]
        for first in range(0, len(batches), ACCUMULATE):
            together = batches[first : first + ACCUMULATE]
            job.optimizer.zero_grad()
            for rows in together:
                (mean_loss(job.model, rows) / len(together)).backward()
            clip_grad_norm_(job.model.parameters(), MAX_NORM)
            job.optimizer.step()
            job.schedule.step()
