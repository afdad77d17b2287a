"""Operations (FLOPs) of a forward pass, by formula: nothing is computed, only shapes are.

A multiplication and an addition count as two operations. Only matrix products and convolutions are counted, as torch's
counter does, since elementwise work is small beside them.

    linear layer            2·inputs·outputs, per position
    attention               4·context·w, per position: the products with the keys and with the values, all w wide
    transformer block       24·w² + 4·context·w, per position
    convolution             2·k²·channels in·channels out, per pixel

Attention counts the whole square of positions, as the papers do, although a position looks at earlier ones only. A
backward pass takes twice as many: the gradients of inputs, and those of parameters. Source: Narayanan et al.,
"Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, appendix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the formulas need no torch
    from torch import nn

FORWARD_AND_BACKWARD = 3  # times the operations of a forward pass


def linear(inputs: int, outputs: int) -> int:
    """Return the operations of one position in a linear layer."""
    return 2 * inputs * outputs


def attention(context: int, width: int) -> int:
    """Return the operations of one position in attention itself, without its four linear layers."""
    return 4 * context * width


def block(context: int, width: int) -> int:
    """Return the operations of one position in a transformer block."""
    return 12 * linear(width, width) + attention(context, width)


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    """Return the operations of one pixel in a convolution with this number of channels."""
    return linear(kernel**2 * inputs, outputs)


def mlp(shape: Sequence[int], classes: int, hidden: int, depth: int) -> int:
    """Return the operations of one sample."""
    return sum(linear(*each) for each in pairwise([prod(shape), *[hidden] * depth, classes]))


def cnn(shape: Sequence[int], classes: int, hidden: int, depth: int) -> int:
    """Return the operations of one sample."""
    from farandole.models.classifiers import CHANNELS, KERNEL, pooled

    channels = [shape[0], *(CHANNELS << number for number in range(depth))]
    convolutions = sum(
        convolution(*each, KERNEL) * prod(pooled(shape, number)) for number, each in enumerate(pairwise(channels))
    )
    return convolutions + mlp((channels[-1], *pooled(shape, depth)), classes, hidden, 1)


def transformer(shape: Sequence[int], classes: int, hidden: int, depth: int) -> int:
    """Return the operations of one sample, of all its positions."""
    (context,) = shape
    return context * (depth * block(context, hidden) + linear(hidden, classes))


# As `choices.MODELS`: given a sample's shape, the number of answers, the width and the depth.
OPERATIONS: dict[str, Callable[[Sequence[int], int, int, int], int]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
}


def counted(model: nn.Module, forward: Callable[[nn.Module], object]) -> int:
    """Return the operations that torch's own counter finds in ``forward(model)``, for a model without a formula.

    Attention is computed by matrix products meanwhile, since the counter does not know the CPU's fused kernel. The
    model keeps its statistics (it is in evaluation mode), and torch's generator its state. The first call in a process
    takes 1.4 s, since torch loads its compiler.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    training = model.training
    counter = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        forward(model.eval())
    model.train(training)
    return int(counter.get_total_flops())
