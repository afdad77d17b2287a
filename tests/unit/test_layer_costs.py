"""What layers cost by shapes, against torch's own counting."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from farandole.cost.layer_costs import of_model
from farandole.data import datasets
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.tensor.units import units
from farandole.models import choices
from farandole.models.options import TrainingOptions

MODELS = [
    TrainingOptions(hidden=48, depth=3),
    TrainingOptions(data="mnist5k", model="cnn", hidden=32),
    TrainingOptions(data="pydoc", model="transformer", hidden=32, depth=3),
]


@pytest.mark.parametrize("options", MODELS, ids=lambda options: options.model)
def test_operations_parameters_and_outputs_are_torchs(options: TrainingOptions) -> None:
    costs, _ = of_model(options)
    model = choices.build(options)
    shape = datasets.shape(options.data)
    given = torch.zeros((1, *shape), dtype=torch.int64 if options.data == "pydoc" else None)
    assert len(costs.layers) == len(model)
    for cost, layer in zip(costs.layers, model, strict=True):
        # By matrix products: the counter does not know the CPU's fused attention.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            outputs = layer(given)
        assert cost.operations == counter.get_total_flops(), layer
        assert cost.weights + cost.vectors == sum(parameter.numel() for parameter in layer.parameters())
        assert cost.outputs == outputs.nbytes
        given = outputs


def test_a_block_exchanges_its_activations_four_times() -> None:
    """Megatron-LM: an all-reduce after attention and after the feed-forward network, and one each in backward."""
    _, units = of_model(MODELS[2])
    assert units
    _, block, *_, head = units.layers
    assert block.exchanged == (64 * 32 * 4,) * 4
    assert head.exchanged == (64 * 32 * 4,)
    assert units.most_tensor_ranks == 2, "two heads"


@pytest.mark.parametrize("options", [MODELS[0], MODELS[2]], ids=lambda options: options.model)
@pytest.mark.parametrize("tensor", [1, 2])
def test_what_is_kept_is_the_footprints(options: TrainingOptions, tensor: int) -> None:
    """Of two pieces, for a number of samples that was not used to find the terms."""
    _, cost = of_model(options)
    assert cost
    with torch.device("meta"):
        model = choices.build(options)
    given = torch.empty((10, *datasets.shape(options.data)), dtype=torch.int64 if options.data == "pydoc" else None)
    pieces = units(model)
    for first, last in ((0, 2), (1, len(pieces))):
        opened = [each for unit in pieces[first:last] for each in (unit if isinstance(unit, nn.Sequential) else [unit])]
        inputs = given.to("meta")
        for unit in pieces[:first]:
            inputs = unit(inputs)
        right = footprint(opened, inputs, loss=last == len(pieces), tensor_ranks=tensor)
        assert right
        assert cost.kept(first, last, 10, tensor) == pytest.approx(right.activations, abs=20)


def test_what_cannot_be_divided_says_so() -> None:
    assert of_model(MODELS[1])[1] is None
