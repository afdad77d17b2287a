"""Two classifiers for small images: a multilayer perceptron and a convolutional network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn


def mlp(shape: Sequence[int], classes: int, hidden: int = 128) -> nn.Sequential:
    """Two hidden layers; (samples, *shape) → (samples, classes) logits."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def cnn(shape: Sequence[int], classes: int, hidden: int = 128) -> nn.Sequential:
    """Two convolutions, each followed by a pooling that halves the image, and two linear layers.

    No batch normalisation: its statistics would depend on how the batch is cut over the ranks.
    """
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


MODELS: dict[str, Callable[[Sequence[int], int, int], nn.Sequential]] = {"mlp": mlp, "cnn": cnn}
