"""The optimizers equal torch's, step by step, and return their whole state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from farandole.models.optimizers import OPTIMIZERS, maker

TWINS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p, **more: torch.optim.SGD(p, lr=0.1, **more),
    "momentum": lambda p, **more: torch.optim.SGD(p, lr=0.1, momentum=0.9, **more),
    "adam": lambda p, **more: torch.optim.Adam(p, lr=0.1, **more),
    "adamw": lambda p, **more: torch.optim.AdamW(p, lr=0.1, **more),
}
CASES = [
    *((name, {}, name, {}) for name in ("sgd", "momentum", "adam")),
    *((name, {"l2": 0.2}, name, {"weight_decay": 0.2}) for name in ("sgd", "momentum", "adam")),  # torch's is L2
    ("adam", {"decay": 0.2}, "adamw", {"weight_decay": 0.2}),
]


@pytest.mark.parametrize(("name", "decay", "twin", "its_decay"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moves_as_torch_does(
    name: str, decay: dict[str, float], twin: str, its_decay: dict[str, float], dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    values = torch.randn(1001, dtype=dtype)
    gradients = torch.zeros_like(values)
    theirs = torch.nn.Parameter(values.clone())
    ours, its = maker(name, 0.1, **decay)(values, gradients), TWINS[twin]([theirs], **its_decay)
    for _ in range(20):
        gradients.copy_(torch.randn_like(values))
        theirs.grad = gradients.clone()
        ours.step()
        its.step()
        assert torch.equal(values, theirs.detach())


@pytest.mark.parametrize(("name", "same"), [("sgd", True), ("adam", False)])
def test_the_two_kinds_of_weight_decay_are_one_for_plain_sgd_alone(name: str, same: bool) -> None:
    torch.manual_seed(3)
    start, gradient = torch.randn(2, 100, dtype=torch.float64)
    moved = []
    for decay in ({"l2": 0.1}, {"decay": 0.1}):
        values, gradients = start.clone(), torch.empty_like(start)
        optimizer = maker(name, 0.05, **decay)(values, gradients)
        for _ in range(10):
            gradients.copy_(gradient)
            optimizer.step()
        moved.append(values)
    assert torch.allclose(*moved, rtol=1e-12) == same


@pytest.mark.parametrize("name", OPTIMIZERS)
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
