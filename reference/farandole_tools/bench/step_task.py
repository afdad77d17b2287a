"""What `farandole bench step` trains, and in which ways of ours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from farandole.data.characters import CONTEXT, VOCABULARY
from farandole.models.classifiers import mlp
from farandole.models.transformer import transformer

SHAPE, CLASSES = (1, 28, 28), 10
SAMPLES = 8  # of each rank
LR = 0.01
BUCKET_BYTES = 4 << 20
LANGUAGE = "language model"
MODELS: dict[str, Callable[[], nn.Module]] = {
    "10 M": lambda: mlp(SHAPE, CLASSES, hidden=2048, depth=3),
    "0.1 M": lambda: mlp(SHAPE, CLASSES, hidden=110, depth=3),
    LANGUAGE: lambda: transformer((CONTEXT,), len(VOCABULARY), hidden=128, depth=4),
}
# Which all-reduce, and whether it overlaps.
OWN_LOOP = "own loop, ring"
OURS = {
    "ring": ("ring", False),
    "MPI_Allreduce": ("mpi", False),
    "window": ("window", False),
    "ring, overlapped": ("ring", True),
    "window, overlapped": ("window", True),
    OWN_LOOP: ("ring", False),
}


def parameters(case: str) -> int:
    """How many the model has."""
    return sum(each.numel() for each in MODELS[case]().parameters())


def batch(case: str, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one rank; noise, for nothing is to be learned."""
    noise = torch.Generator().manual_seed(seed)
    if case == LANGUAGE:
        text = torch.randint(len(VOCABULARY), (SAMPLES, CONTEXT + 1), generator=noise)
        return text[:, :-1], text[:, 1:]
    return torch.randn(SAMPLES, *SHAPE, generator=noise), torch.randint(CLASSES, (SAMPLES,), generator=noise)
