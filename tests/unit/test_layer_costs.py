"""The cost of layers by their shapes, against torch's own count."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from farandole import own_task
from farandole.cost.layer_costs import of_model
from farandole.cost.memory import Numbers, by_stage
from farandole.cost.training_plan import TrainingPlan
from farandole.data import datasets
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.tensor.units import units
from farandole.models import choices, operations
from farandole.models.options import TrainingOptions
from farandole.models.shape import Shape
from farandole.models.training_state import BytesPerParameter
from farandole.tasks import Task, built_in

MODELS = [
    TrainingOptions(hidden=48, depth=3),
    TrainingOptions(data="mnist5k", model="cnn", hidden=32),
    TrainingOptions(data="pydoc", model="transformer", hidden=32, depth=3),
]


@pytest.mark.parametrize("options", MODELS, ids=lambda options: options.model)
def test_operations_parameters_and_outputs_are_torchs(options: TrainingOptions) -> None:
    costs, _ = of_model(built_in(options))
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


@pytest.mark.parametrize("options", MODELS, ids=lambda options: options.model)
def test_a_record_counts_what_torch_counts(options: TrainingOptions) -> None:
    """By formula, for a sample's forward pass three times over; and by the counter for the user's own tasks."""
    shape = datasets.shape(options.data)
    given = torch.zeros((1, *shape), dtype=torch.int64 if options.data == "pydoc" else None)
    assert options.flops_per_sample() == 3 * operations.counted(choices.build(options), lambda model: model(given))


def test_a_tasks_operations_are_counted_without_an_effect_or_not_known() -> None:
    data = torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64)
    own, other = (Task(lambda width=width: nn.Linear(width, 3), data, data) for width in (6, 5))
    state = torch.get_rng_state()
    assert TrainingOptions(task=own_task.give(own, "own"), peak_flops=1e9).flops_per_sample() == 3 * 2 * 6 * 3
    assert TrainingOptions(task=own_task.give(own, "own")).flops_per_sample() is None, "nothing needs them"
    assert torch.equal(torch.get_rng_state(), state)
    assert other.operations_per_sample() is None, "it does not take these samples"


def test_a_models_shape_has_its_parameters_and_activations() -> None:
    """The calculators' shape of a model that runs here agrees with the model."""
    options = MODELS[2]
    (context,) = datasets.shape("pydoc")
    shape = Shape(options.depth, options.hidden, 2, context, datasets.classes("pydoc"), tied=False)
    with torch.device("meta"):
        model = choices.build(options)
    assert shape.parameters == sum(each.numel() for each in model.parameters())
    numbers = Numbers(BytesPerParameter.of("adam", mixed=False), 4, fused=True, dropout=False)
    for tensor in (1, 2):
        plan = TrainingPlan(tensor, tensor, micro_batch=10)
        kept = footprint(
            model, torch.empty((10, context), dtype=torch.int64, device="meta"), loss=True, tensor_ranks=tensor
        )
        [found] = by_stage(shape, plan, numbers)
        assert kept
        # The footprint has the norms' means and deviations, targets and indices, too.
        assert found.activations == pytest.approx(kept.activations, rel=0.03)
        assert found.activations < kept.activations


def test_a_block_exchanges_its_activations_four_times() -> None:
    """Megatron-LM: an all-reduce after attention and after the feed-forward network, and one each in backward."""
    _, units = of_model(built_in(MODELS[2]))
    assert units
    _, block, *_, head = units.layers
    assert block.exchanged == (64 * 32 * 4,) * 4
    assert head.exchanged == (64 * 32 * 4,)
    assert units.most_tensor_ranks == 2, "two heads"


@pytest.mark.parametrize("options", [MODELS[0], MODELS[2]], ids=lambda options: options.model)
@pytest.mark.parametrize("tensor", [1, 2])
def test_what_is_kept_is_the_footprints(options: TrainingOptions, tensor: int) -> None:
    """Of two pieces, for a number of samples that was not used to find the terms."""
    _, cost = of_model(built_in(options))
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
    assert of_model(built_in(MODELS[1]))[1] is None
