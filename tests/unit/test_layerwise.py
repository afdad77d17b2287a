"""LARS and LAMB: the papers' formulas, and their purpose."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.models.layerwise import LAYERWISE, maker_for
from farandole.models.optimizers import maker
from farandole.runtime.buffers import FlatBuffers

LR, STEPS = 0.05, 12
L2, DECAY = 0.1, 0.2


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def moved(name: str, scale: float = 1.0, l2: float = 0.0, decay: float = 0.0) -> tuple[nn.Module, list[list[Tensor]]]:
    """A model after some steps, and the gradients of each."""
    its, seen = model(), []
    flat = FlatBuffers(its)
    optimizer = maker_for(its, name, LR, l2, decay)(flat.values, flat.gradients)
    torch.manual_seed(6)
    for _ in range(STEPS):
        flat.gradients.copy_(scale * torch.randn_like(flat.gradients))
        seen.append([each.grad.clone() for each in its.parameters() if each.grad is not None])
        optimizer.step()
    return its, seen


@pytest.mark.parametrize(
    ("name", "l2", "decay"), [("lars-normalised", 0.0, 0.0), ("lars-normalised", L2, 0.0), ("lamb", 0.0, DECAY)]
)
def test_it_is_the_algorithm_of_2020(name: str, l2: float, decay: float) -> None:
    found, gradients = moved(name, l2=l2, decay=decay)
    expected = [each.detach().clone() for each in model().parameters()]
    means, squares = ([torch.zeros_like(each) for each in expected] for _ in range(2))
    for step in range(STEPS):
        for layer, x in enumerate(expected):
            g = gradients[step][layer]
            if name == "lars-normalised":
                means[layer] = 0.9 * means[layer] + 0.1 * (g + l2 * x)
                u = means[layer]
            else:
                means[layer] = 0.9 * means[layer] + 0.1 * g
                squares[layer] = 0.999 * squares[layer] + 0.001 * g**2
                m, v = means[layer] / (1 - 0.9 ** (step + 1)), squares[layer] / (1 - 0.999 ** (step + 1))
                u = m / (v.sqrt() + 1e-8) + decay * x
            x -= LR * x.norm() / u.norm() * u
    for its, right in zip(found.parameters(), expected, strict=True):
        torch.testing.assert_close(its.data, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [*LAYERWISE, "sgd"])
def test_the_length_of_the_gradient_does_not_matter(name: str) -> None:
    short, long = moved(name)[0], moved(name, scale=1000.0)[0]
    same = all(
        torch.allclose(its, other, rtol=1e-5) for its, other in zip(short.parameters(), long.parameters(), strict=True)
    )
    assert same == (name in LAYERWISE)


@pytest.mark.parametrize("beta", [0.0, L2])
@pytest.mark.parametrize("falls", [False, True], ids=["constant rate", "falling rate"])
def test_lars_is_the_algorithm_of_2017(beta: float, falls: bool) -> None:
    """Compare with a float64 computation by hand: momentum sums the scaled steps, each with its own step's rate."""
    its = model()
    flat = FlatBuffers(its)
    optimizer = maker_for(its, "lars", 20.0, beta)(flat.values, flat.gradients)
    expected = [each.detach().clone() for each in its.parameters()]
    velocities = [torch.zeros_like(each) for each in expected]
    torch.manual_seed(6)
    for step in range(STEPS):
        optimizer.lr = 20.0 * (1 - step / STEPS) ** 2 if falls else 20.0  # the paper's polynomial decay
        flat.gradients.copy_(torch.randn_like(flat.gradients))
        for w, v, parameter in zip(expected, velocities, its.parameters(), strict=True):
            g = parameter.grad
            local = 0.001 * math.sqrt((w**2).sum()) / (math.sqrt((g**2).sum()) + beta * math.sqrt((w**2).sum()))
            v.copy_(0.9 * v + optimizer.lr * local * (g + beta * w))
            w -= v
        optimizer.step()
        for parameter, right in zip(its.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.data, right, rtol=1e-12, atol=1e-14)


def test_lars_remembers_the_rate_of_each_step_and_the_normalised_one_does_not() -> None:
    """One parameter, w = 1, g = 1, then a rate of 0: LARS continues by 0.9 of its last step."""
    moved_by = {}
    for name in ("lars", "lars-normalised"):
        w, g = torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        optimizer = LAYERWISE[name](w, g, 100.0 if name == "lars" else 0.1)
        optimizer.step()
        first = 1 - w.item()
        optimizer.lr = 0.0
        optimizer.step()
        moved_by[name] = (first, 1 - first - w.item())
    assert moved_by["lars"] == (pytest.approx(0.1), pytest.approx(0.09))
    assert moved_by["lars-normalised"] == (pytest.approx(0.1), 0)


def test_lars_has_its_own_weight_decay() -> None:
    with pytest.raises(UsageError, match="give --l2, not --weight-decay"):
        maker_for(model(), "lars", LR, 0.0, DECAY)


@pytest.mark.parametrize("name", ["lars-normalised", "lamb"])
def test_every_layer_moves_by_the_same_part_of_its_length(name: str) -> None:
    its = model()
    before = [each.detach().clone() for each in its.parameters()]
    flat = FlatBuffers(its)
    flat.gradients.normal_()
    maker_for(its, name, LR)(flat.values, flat.gradients).step()
    for old, new in zip(before, its.parameters(), strict=True):
        assert ((new - old).norm() / old.norm()).item() == pytest.approx(LR, rel=1e-9)


@pytest.mark.parametrize("name", LAYERWISE)
def test_a_layer_without_a_length_or_a_direction(name: str) -> None:
    its = model()
    with torch.no_grad():
        for each in its[0].parameters():
            each.zero_()
    flat = FlatBuffers(its)
    flat.gradients.normal_()
    before = flat.values.clone()
    its[2].bias.grad.zero_()
    maker_for(its, name, LR)(flat.values, flat.gradients).step()
    assert flat.values.isfinite().all()
    assert its[0].weight.abs().min() > 0, "one that was 0 does not stay there"
    assert torch.equal(its[2].bias, before[-3:]), "one without a gradient stays where it was"


def test_the_others_are_those_of_optimizers() -> None:
    its = model()
    flat = FlatBuffers(its)
    assert type(maker_for(its, "adam", LR)(flat.values, flat.gradients)) is type(
        maker("adam", LR)(flat.values, flat.gradients)
    )
