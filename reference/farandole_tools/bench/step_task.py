"""The task of `farandole bench step`, and our methods among those that it compares."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from farandole.data.characters import CONTEXT, VOCABULARY
from farandole.models.classifiers import mlp
from farandole.models.transformer import transformer

SHAPE, CLASSES = (1, 28, 28), 10
SAMPLES = 8  # of each rank; of the large model 1
LR = 0.01
BUCKET_BYTES = 4 << 20
LANGUAGE, GPT2, RESNET, LARGE_GPT2 = "language model", "GPT-2", "ResNet-18", "GPT-2, 124 M"
OF_A_LIBRARY = (GPT2, RESNET, LARGE_GPT2)  # of the package transformers
TOKENS, VOCABULARY_OF_GPT2 = 64, 2048
IMAGE = (3, 64, 64)


class Logits(nn.Module):
    """A model of transformers that returns its logits alone, as the others here do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.model(inputs).logits
        return found


def gpt2(width: int = 256, heads: int = 8, positions: int = TOKENS, vocabulary: int = VOCABULARY_OF_GPT2) -> nn.Module:
    """12 layers; 10 million parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=width, n_layer=12, n_head=heads, n_positions=positions, vocab_size=vocabulary,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return Logits(GPT2LMHeadModel(config))


def resnet18() -> nn.Module:
    """11 million parameters, for images of 10 classes."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    config.num_labels = CLASSES
    return Logits(ResNetForImageClassification(config))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "10 M": lambda: mlp(SHAPE, CLASSES, hidden=2048, depth=3),
    "0.1 M": lambda: mlp(SHAPE, CLASSES, hidden=110, depth=3),
    LANGUAGE: lambda: transformer((CONTEXT,), len(VOCABULARY), hidden=128, depth=4),
    GPT2: gpt2,
    RESNET: resnet18,
    LARGE_GPT2: lambda: gpt2(768, 12, 1024, 50257),  # as it was published
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


def rate(case: str) -> float:
    """Return the learning rate: a small one where BatchNorm, of 8 samples, makes much of differences in rounding."""
    return LR / 100 if case == RESNET else LR


def parameters(case: str) -> int:
    """Return the number of the model's parameters."""
    return sum(each.numel() for each in MODELS[case]().parameters())


def batch(case: str, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one rank; noise, for nothing is to be learned."""
    noise = torch.Generator().manual_seed(seed)
    if case in (LANGUAGE, GPT2, LARGE_GPT2):
        words, length = (len(VOCABULARY), CONTEXT) if case == LANGUAGE else (VOCABULARY_OF_GPT2, TOKENS)
        samples = 1 if case == LARGE_GPT2 else SAMPLES
        text = torch.randint(words, (samples, length + 1), generator=noise)
        return text[:, :-1], text[:, 1:]
    shape = IMAGE if case == RESNET else SHAPE
    return torch.randn(SAMPLES, *shape, generator=noise), torch.randint(CLASSES, (SAMPLES,), generator=noise)
