"""The optimizers are those of torch, step by step, and say all they remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from farandole.models.optimizers import maker

TWINS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moves_as_torch_does(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    values = torch.randn(1001, dtype=dtype)
    gradients = torch.zeros_like(values)
    theirs = torch.nn.Parameter(values.clone())
    ours, twin = maker(name, 0.1)(values, gradients), TWINS[name]([theirs])
    for _ in range(20):
        gradients.copy_(torch.randn_like(values))
        theirs.grad = gradients.clone()
        ours.step()
        twin.step()
        assert torch.equal(values, theirs.detach())


@pytest.mark.parametrize("name", TWINS)
def test_goes_on_from_its_state(name: str) -> None:
    torch.manual_seed(2)
    gradients = torch.randn(10)
    whole = maker(name, 0.1)(torch.ones(10), gradients)
    for _ in range(5):
        whole.step()
    later = maker(name, 0.1)(whole.values.clone(), gradients)
    for key, tensor in later.state.items():
        tensor.copy_(whole.state[key])
    whole.step()
    later.step()
    assert torch.equal(whole.values, later.values)


def test_the_learning_rate_may_change_between_two_steps() -> None:
    values = torch.zeros(3)
    optimizer = maker("sgd", 1.0)(values, torch.ones(3))
    optimizer.step()
    optimizer.lr = 0.5
    optimizer.step()
    assert values.tolist() == [-1.5] * 3
