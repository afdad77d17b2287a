"""The costs of each layer of a model, from shapes alone: parameters, operations, bytes of outputs and of exchanges.

Nothing is computed: the layers are on torch's meta device. Operations are those of one sample in one forward pass, by
the formulas of `models.operations`. Split over T tensor ranks, a layer exchanges its activations by all-reduce
(`model_parallel.tensor`): a block twice forward and twice backward, a pair of linear layers once each way. Source:
Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.tensor.units import units
from farandole.models import operations
from farandole.models.transformer import Attention, Block, Embedding, Head
from farandole.tasks import BuiltIn


@dataclass(frozen=True)
class LayerCost:
    """The cost of one layer, or of one unit of several layers that are cut together.

    Attributes:
        weights, vectors: numbers of parameters that tensor ranks divide, and that each of them keeps whole.
        operations: of a sample's forward pass.
        outputs: bytes of a sample's outputs.
        exchanged: bytes of a sample in each all-reduce of the tensor ranks, forward and backward.
    """

    weights: int
    vectors: int
    operations: float
    outputs: int
    exchanged: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelCost:
    """A model as a list of layers between which it can be cut.

    Attributes:
        layers: in order.
        kept: (first, last, rows, tensor ranks) → bytes that the layers first … last − 1 keep of `rows` samples from the
            forward to the backward pass.
        most_tensor_ranks: the largest number of ranks over which every layer can be divided.
        bytes_each: bytes of one parameter.
    """

    layers: Sequence[LayerCost]
    kept: Callable[[int, int, int, int], int]
    most_tensor_ranks: int = 1
    bytes_each: int = 4


def of_model(task: BuiltIn, dtype: torch.dtype = torch.float32) -> tuple[ModelCost, ModelCost | None]:
    """Return the costs of the task's model: cut between any two layers, and in units that tensor ranks can divide.

    The latter is None where they cannot.

    Args:
        dtype: of parameters and activations.
    """
    with torch.device("meta"):
        model = task.model().to(dtype)
    sample = torch.empty((1, *task.shape), dtype=torch.int64 if task.is_text else dtype, device="meta")
    try:
        grouped = units(model)
    except UsageError:
        return _costs(list(model), sample, 1), None
    return _costs(list(model), sample, 1), _costs(grouped, sample, _most_tensor_ranks(model))


def _costs(layers: Sequence[nn.Module], sample: Tensor, most_tensor_ranks: int) -> ModelCost:
    inputs, costs = [sample], []
    for number, layer in enumerate(layers):
        outputs = layer(inputs[-1])
        costs.append(_cost(layer, inputs[-1], outputs, first=number == 0, last=number == len(layers) - 1))
        inputs.append(outputs)

    def footprint_of(first: int, last: int, rows: int, tensor: int) -> int:
        opened = [layer for unit in layers[first:last] for layer in _opened(unit)]
        given = inputs[first]
        given = given.new_empty((rows, *given.shape[1:]))
        found = footprint(opened, given, loss=last == len(layers), tensor_ranks=tensor)
        assert found, "every layer of our models has a formula"
        return found.activations

    @cache
    def terms(first: int, last: int) -> tuple[int, int, int]:
        """Return the bytes kept once, those kept per sample, and the part of these that tensor ranks divide."""
        one, two = (footprint_of(first, last, rows, 1) for rows in (1, 2))
        return 2 * one - two, two - one, two - footprint_of(first, last, 2, 2) if most_tensor_ranks > 1 else 0

    def kept(first: int, last: int, rows: int, tensor: int) -> int:
        once, each, divided = terms(first, last)
        return once + rows * (each - divided + -(-divided // tensor))

    return ModelCost(costs, kept, most_tensor_ranks, inputs[-1].itemsize)


def _cost(layer: nn.Module, inputs: Tensor, outputs: Tensor, *, first: bool, last: bool) -> LayerCost:
    opened = _opened(layer)
    size = sum(parameter.numel() for parameter in layer.parameters())
    vectors = sum(parameter.numel() for parameter in layer.parameters() if parameter.dim() == 1)
    count, given = 0.0, inputs
    for each in opened:
        made = each(given)
        count += _operations(each, given, made)
        given = made
    match layer:
        case Embedding():
            vectors += layer.places.weight.numel()
            exchanged = [outputs.nbytes]
        case Block():
            exchanged = [outputs.nbytes] * 4
        case Head():
            exchanged = [inputs.nbytes]
        case _:  # by columns, then by rows: the sum goes forward, the inputs' gradient backward
            exchanged = ([] if last else [outputs.nbytes]) + ([] if first else [inputs.nbytes])
    return LayerCost(size - vectors, vectors, count, outputs.nbytes, tuple(exchanged))


def _operations(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> float:
    """Return the operations of one sample's forward pass; elementwise ones are not counted."""
    places = prod(inputs.shape[:-1])
    match layer:
        case nn.Linear():
            return float(places * operations.linear(layer.in_features, layer.out_features))
        case nn.Conv2d():
            kernel, _ = layer.kernel_size
            return float(outputs[0, 0].numel() * operations.convolution(inputs.shape[1], layer.out_channels, kernel))
        case Block():
            return float(places * operations.block(*inputs.shape[-2:]))
        case Head():
            return float(places * operations.linear(layer.logits.in_features, layer.logits.out_features))
    return 0.0


def _opened(layer: nn.Module) -> list[nn.Module]:
    return list(layer) if isinstance(layer, nn.Sequential) else [layer]


def _most_tensor_ranks(model: nn.Sequential) -> int:
    """Return the smallest number of pieces that a layer can be divided into: heads, hidden units, classes."""
    heads = [each.query.out_features // each.head_width for each in model.modules() if isinstance(each, Attention)]
    return min([*heads, *(each.out_features for each in model.modules() if isinstance(each, nn.Linear))])
