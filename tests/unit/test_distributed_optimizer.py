"""The optimizers around the user's own, apart from a launch."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from farandole.errors import UsageError
from farandole.own_loop.server import PushingOptimizer
from farandole.own_loop.synchronous import DistributedOptimizer


def test_a_step_is_distributed_though_a_schedule_was_made_of_the_inner_optimizer_before() -> None:
    """A schedule replaces the step method of its optimizer."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    inner = torch.optim.SGD([parameter], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    world: Any = SimpleNamespace(comm=SimpleNamespace(size=2), communicate=lambda what: nullcontext())

    def add_another_rank(comm: Any, vector: Any) -> None:
        vector[:2] += 3.0

    optimizer = DistributedOptimizer(world, inner, 1, None, add_another_rank)
    for expected in (-3.5, -5.25):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        schedule.step()
        assert parameter.tolist() == [expected, expected]


@pytest.mark.parametrize("every", [1, 2])
def test_several_backward_passes_before_a_step_add_up(every: int) -> None:
    """Gradient accumulation within a batch, as in one process; and over two batches."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    world: Any = SimpleNamespace(comm=SimpleNamespace(size=2), communicate=lambda what: nullcontext())
    sums: list[Any] = []
    optimizer = DistributedOptimizer(
        world, torch.optim.SGD([parameter], lr=1.0), every, None, lambda comm, vector: sums.append(vector.copy())
    )
    for _ in range(2 * every):
        optimizer.zero_grad()
        for part in (1.0, 3.0, 4.0):
            (part * parameter.sum()).backward()
        optimizer.step()
    assert [each[:2].tolist() for each in sums] == [[4.0, 4.0]] * 2, "half of 1 + 3 + 4, this rank's share, once a step"
    assert parameter.tolist() == [-8.0, -8.0]


def test_the_servers_optimizer_refuses_a_schedule_that_was_made_before() -> None:
    inner = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    served: Any = None
    optimizer = PushingOptimizer(served, inner)
    inner.step()
    schedule.step()
    with pytest.raises(UsageError, match="leave out the schedule"):
        optimizer.step()
