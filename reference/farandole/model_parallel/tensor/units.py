"""The pieces of a model between which activations are whole on every rank.

A pipeline may cut between units, and so may a reader. The language model's layers are units as
they are. A multilayer perceptron is taken two linear layers at a time, a column layer and a row
layer (``linear``); the last linear layer stands alone, as the head whose outputs, the logits, stay
divided; a layer left over before it stands alone too and gathers its outputs.

    Flatten Linear ReLU Linear ReLU │ Linear
    Flatten Linear ReLU Linear ReLU │ Linear ReLU │ Linear
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from torch import nn

from farandole.errors import UsageError
from farandole.models.transformer import Block, Embedding, Head

ELEMENTWISE = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Identity)  # they need not see what another rank has


def units(model: nn.Sequential) -> list[nn.Module]:
    """Return the model's layers in order, grouped; a unit of more than one layer is an `nn.Sequential`.

    Raises:
        UsageError: a layer that the tensor split cannot divide.
    """
    layers = list(model)
    if all(isinstance(layer, (Embedding, Block, Head)) for layer in layers):
        return layers
    linears = [place for place, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    for place, layer in enumerate(layers):
        before_the_first = bool(linears) and place < linears[0]
        if not isinstance(layer, (nn.Linear, *ELEMENTWISE)) and not (
            isinstance(layer, nn.Flatten) and before_the_first
        ):
            raise UsageError(
                f"the tensor split cannot divide {type(layer).__name__}, layer {place} of the model: "
                "use --model mlp or --model transformer"
            )
    if not linears or linears[-1] != len(layers) - 1:
        raise UsageError("the tensor split needs a model that ends in a linear layer: use --model mlp or transformer")
    bounds = [0, *linears[2:-1:2], linears[-1], len(layers)] if len(linears) > 1 else [0, len(layers)]
    return [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(bounds)]


def opened(piece: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the layers of some units, in order."""
    return [layer for unit in piece for layer in (unit if isinstance(unit, nn.Sequential) else [unit])]
