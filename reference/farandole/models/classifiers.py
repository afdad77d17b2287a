"""Two classifiers for small images: a multilayer perceptron and a convolutional network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from farandole.errors import UsageError

KERNEL = 3  # a convolution's window is 3×3
CHANNELS = 16  # of the first convolution; each later one has twice as many as the one before


def mlp(shape: Sequence[int], classes: int, hidden: int = 128, depth: int = 2) -> nn.Sequential:
    """`depth` hidden layers; (samples, *shape) → (samples, classes) logits."""
    channels, height, width = shape
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = channels * height * width
    for _ in range(depth):
        layers += [nn.Linear(inputs, hidden), nn.ReLU()]
        inputs = hidden
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def cnn(shape: Sequence[int], classes: int, hidden: int = 128, depth: int = 2) -> nn.Sequential:
    """`depth` convolutions, each followed by a pooling that halves the image, and two linear layers.

    No batch normalisation: its statistics would depend on how the batch is cut over the ranks.

    Raises:
        UsageError: the image is too small to be halved so often.
    """
    height, width = pooled(shape, depth)
    channels = [shape[0], *(CHANNELS << number for number in range(depth))]
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, kernel_size=KERNEL, padding=KERNEL // 2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels[-1] * height * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def pooled(shape: Sequence[int], depth: int) -> tuple[int, int]:
    """Return an image's height and width after it was halved `depth` times.

    Raises:
        UsageError: nothing would be left of it.
    """
    _, height, width = shape
    most = min(height, width).bit_length() - 1
    if depth > most:
        raise UsageError(
            f"--depth {depth}: each convolution of the cnn halves the image, and {height}×{width} pixels "
            f"can be halved {most} times at most"
        )
    return height >> depth, width >> depth
