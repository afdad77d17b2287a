"""ResNet of the package transformers, small and with random weights, learns handwritten digits of 28 × 28 pixels.

    farandole run sync_sgd -n 2 --task examples/resnet.py --batch 64 --lr 0.05 --steps 60

Samples come one by one from a Dataset that prepares each image. Every rank's BatchNorm sees its part of the batch, and
its statistics are averaged at the end.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification

from farandole import Task
from farandole.data import datasets

CONFIG = ResNetConfig(
    num_channels=1, embedding_size=16, hidden_sizes=[16, 32, 64], depths=[1, 1, 1], layer_type="basic", num_labels=10
)


class Images(Dataset[dict[str, Tensor]]):
    """Digits as the model expects them, with the mean 0."""

    def __init__(self, digits: datasets.Dataset) -> None:
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        image, digit = self.digits.inputs[number], self.digits.targets[number]
        return {"pixel_values": torch.from_numpy(image) - 0.13, "labels": torch.tensor(digit)}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = model(**batch).loss
    return found


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    likeliest = model(pixel_values=batch["pixel_values"]).logits.argmax(dim=-1)
    return torch.eq(likeliest, batch["labels"])


def task() -> Task:
    digits = datasets.split(datasets.load("mnist5k"), seed=0)
    return Task(
        lambda: ResNetForImageClassification(CONFIG),
        train=Images(digits.train),
        test=Images(digits.test),
        loss=loss,
        metrics={"accuracy": accuracy},
        name="ResNet",
    )
