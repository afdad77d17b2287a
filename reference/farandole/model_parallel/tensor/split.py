"""A model into the ranks' parts, and the parts into a model again.

Every rank is given the same whole unit; it takes its part out of it, and the whole can be
forgotten. A layer and its parallel counterpart have the same parameters under the same
names, so the way back is to gather the divided ones. Cost of `whole`: the ring's all-gather, for n
bytes of divided parameters (P−1)/P·n per rank.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from farandole.errors import UsageError
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.exchange import TensorGroup
from farandole.model_parallel.tensor.linear import ColumnLinear, RowLinear
from farandole.model_parallel.tensor.sequence import SequenceBlock, SequenceEmbedding, SequenceHead
from farandole.model_parallel.tensor.transformer import ParallelBlock, ParallelEmbedding, ParallelHead
from farandole.model_parallel.tensor.units import units
from farandole.models.transformer import Block, Embedding, Head


def split(unit: nn.Module, group: TensorGroup, context: int | None = None) -> nn.Module:
    """Return this rank's part of one of the model's `units`; takes and gives whole activations, a head divided logits.

    Args:
        unit: the same on all ranks; it is copied from and not kept.
        context: positions of a sequence, which are divided as well (``sequence``): activations between units are then
            those of this rank's positions; None: they are whole.

    Raises:
        UsageError: more ranks than heads, symbols, inputs or outputs, or no unit of a model, or none with positions.
    """
    if context is not None:
        return _split_sequence(unit, group, context)
    if isinstance(unit, Embedding):
        return ParallelEmbedding(unit, group)
    if isinstance(unit, Block):
        return ParallelBlock(unit, group)
    if isinstance(unit, Head):
        return ParallelHead(unit, group)
    if isinstance(unit, nn.Sequential):
        return _split_perceptron(unit, group)
    raise UsageError(f"the tensor split cannot divide {type(unit).__name__}: give one of the model's units")


def split_model(model: nn.Sequential, group: TensorGroup, context: int | None = None) -> nn.Sequential:
    """Return this rank's part of every unit of `model`, in order; its output is divided logits.

    Args:
        context: as of `split`.
    """
    return nn.Sequential(*(split(unit, group, context) for unit in units(model)))


def whole(module: nn.Module, group: TensorGroup) -> nn.Module:
    """Return the unsplit counterpart of a split unit, or of any sequence of them, with its parameters, on every rank.

    Collective.
    """
    with torch.device("meta"):  # no memory and no random numbers for what is replaced at once
        unsplit = _unsplit(module)
    divided = divisions(module)
    parameters = {}
    for name, parameter in module.named_parameters():
        own = parameter.detach().clone()
        if name in divided:
            own = group.gather(own, divided[name].shares, divided[name].dimension)
        parameters[name] = own
    unsplit.load_state_dict(parameters, assign=True)
    return unsplit


def _split_sequence(unit: nn.Module, group: TensorGroup, context: int) -> nn.Module:
    match unit:
        case Embedding():
            return SequenceEmbedding(unit, group)
        case Block():
            return SequenceBlock(unit, group, context)
        case Head():
            return SequenceHead(unit, group, context)
    raise UsageError("--sequence-parallel divides the positions of text: give --model transformer --data pydoc")


def _split_perceptron(unit: nn.Sequential, group: TensorGroup) -> nn.Sequential:
    """Two linear layers: by columns, then by rows. One: by columns; the last layer is a head, any other gathers."""
    linears = [layer for layer in unit if isinstance(layer, nn.Linear)]
    if not 1 <= len(linears) <= 2:
        raise UsageError(f"{len(linears)} linear layers in a unit: the tensor split divides one or two at a time")
    gathered = len(linears) == 1 and unit[-1] is not linears[0]
    parts: list[nn.Module] = []
    for layer in unit:
        if layer is linears[0]:
            parts.append(ColumnLinear(linears[0], group, gathered=gathered))
        elif isinstance(layer, nn.Linear):
            parts.append(RowLinear(layer, group))
        else:
            parts.append(deepcopy(layer))
    return nn.Sequential(*parts)


def _unsplit(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*(_unsplit(layer) for layer in module))
    if isinstance(module, ColumnLinear):
        return nn.Linear(module.in_features, sum(module.shares), module.bias is not None)
    if isinstance(module, RowLinear):
        return nn.Linear(sum(module.shares), module.out_features, module.bias is not None)
    if isinstance(module, ParallelEmbedding):
        return Embedding(sum(module.characters.shares), module.places.num_embeddings, module.places.embedding_dim)
    if isinstance(module, ParallelBlock):
        output = module.attention.output
        return Block(output.out_features, sum(output.shares) // module.attention.head_width)
    if isinstance(module, ParallelHead):
        return Head(module.logits.in_features, sum(module.logits.shares))
    return deepcopy(module)
