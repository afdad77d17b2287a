"""Where a model may be cut for the tensor split, and each rank's part of a tensor."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from farandole.errors import UsageError
from farandole.model_parallel.tensor.division import Divided, Division, divisions
from farandole.model_parallel.tensor.units import units
from farandole.models.classifiers import cnn, mlp
from farandole.models.transformer import transformer


def names(unit: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in unit.children()]


def perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for wide, narrow in pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_the_language_models_layers_are_units() -> None:
    model = transformer((8,), 23, hidden=32, depth=3)
    assert units(model) == list(model)


def test_linear_layers_go_in_pairs_and_the_last_one_alone() -> None:
    pair, left_over, head = ["Linear", "ReLU", "Linear", "ReLU"], ["Linear", "ReLU"], ["Linear"]
    for linears, expected in (
        (1, [head]),
        (2, [left_over, head]),
        (3, [pair, head]),
        (4, [pair, left_over, head]),
        (5, [pair, pair, head]),
    ):
        first, *others = expected
        assert [names(unit) for unit in units(perceptron(*[3] * (linears + 1)))] == [["Flatten", *first], *others]
    assert [names(unit) for unit in units(mlp((1, 8, 8), 10))] == [["Flatten", *pair], head]


def test_units_in_order_compute_what_the_model_computes() -> None:
    model = mlp((1, 4, 4), 10, hidden=8)
    images = torch.randn(3, 1, 4, 4)
    assert torch.equal(nn.Sequential(*units(model))(images), model(images))
    assert [id(p) for unit in units(model) for p in unit.parameters()] == [id(p) for p in model.parameters()]


@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (cnn((1, 8, 8), 10), "Conv2d, layer 0"),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2)), "Dropout, layer 1"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.Linear(4, 2)), "Flatten, layer 1"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "ends in a linear layer"),
        (nn.Sequential(nn.ReLU()), "ends in a linear layer"),
        (transformer((8,), 23, hidden=32)[1:].append(nn.ReLU()), "Block, layer 0"),
    ],
)
def test_what_cannot_be_divided_is_named_with_what_can(model: nn.Sequential, culprit: str) -> None:
    with pytest.raises(UsageError, match=f"{culprit}.*--model mlp or"):
        units(model)


def test_the_parts_of_a_tensor_are_copies_and_make_it_up() -> None:
    tensor = torch.arange(35.0).reshape(5, 7)
    for dimension, shares in ((0, (2, 2, 1)), (1, (3, 2, 2))):
        parts = [Division(dimension, shares).part(tensor, rank) for rank in range(3)]
        assert torch.equal(torch.cat(list(parts), dimension), tensor)
        for part in parts:
            assert part.untyped_storage().nbytes() == part.numel() * 4, "nothing of the whole is kept"


def test_divided_parameters_have_the_names_of_the_model() -> None:
    class Layer(nn.Linear, Divided):
        pass

    layer = Layer(3, 2)
    layer.divided = {"weight": Division(1, (2, 1))}
    model = nn.Sequential(nn.ReLU(), nn.Sequential(layer))
    assert divisions(model) == {"1.0.weight": Division(1, (2, 1))}
    assert divisions(layer) == {"weight": Division(1, (2, 1))}
    assert set(divisions(model)) <= set(dict(model.named_parameters()))
