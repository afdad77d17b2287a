"""A worker's pushes, against values computed by hand from the papers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from farandole.parameter_server.classification import Trainee
from farandole.parameter_server.contributions import (
    Contribution,
    PushElastic,
    PushGradient,
    PushInPlace,
    PushParameters,
)
from farandole.parameter_server.core.policies import BSP, SSP, Asynchronous, Policy
from farandole.parameter_server.core.update_rules import Add
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.shard import Gradient, Shard
from farandole.runtime.buffers import FlatBuffers


def flat_at(x: float) -> FlatBuffers:
    """One parameter."""
    flat = FlatBuffers(nn.Linear(1, 1, bias=False, dtype=torch.float64))
    flat.values_np[:] = x
    return flat


def slope_of_half_square(flat: FlatBuffers) -> None:
    """The gradient of f = x²/2 at the model's parameters."""
    flat.gradients[:] = flat.values


def test_a_gradient_is_taken_at_what_was_pulled() -> None:
    flat = flat_at(1.0)
    contribution = PushGradient(flat)
    contribution.into[:] = 3.0
    contribution.pulled(share=0.5, lent=None)
    slope_of_half_square(flat)
    assert contribution.to_push().tolist() == [3.0]


def test_in_shared_memory_a_gradient_is_taken_and_written_where_the_servers_are() -> None:
    flat, lent, slot = flat_at(1.0), np.array([3.0]), np.array([np.nan])
    with PushInPlace(flat, slot) as contribution:
        contribution.pulled(share=0.5, lent=lent)
        flat.zero_gradients()
        slope_of_half_square(flat)
        assert contribution.to_push() is slot
        assert slot.tolist() == [3.0]
    assert flat.values_np.tolist() == [1.0], "the model is in its own memory again"
    assert not np.shares_memory(flat.module.weight.detach().numpy(), lent)


@pytest.mark.parametrize(
    ("update", "device", "lends", "kind"),
    [
        ("sgd", "cpu", True, PushInPlace),
        ("sgd", "cpu", False, PushGradient),
        ("sgd", "cuda", True, PushGradient),
        ("blend", "cpu", True, PushParameters),
        ("elastic", "cpu", True, PushElastic),
    ],
)
def test_a_worker_computes_in_the_window_where_that_lends_the_parameters(
    update: Any, device: str, lends: bool, kind: type[Contribution]
) -> None:
    trainee = object.__new__(Trainee)
    world: Any = SimpleNamespace(device=torch.device(device))
    trainee.world, trainee.options, trainee.flat = world, PolicyOptions(update=update), flat_at(1.0)
    kv: Any = SimpleNamespace(slot=np.zeros(1), window=SimpleNamespace(lends=lends))
    assert type(trainee._contribution(kv)) is kind


def test_parameters_are_pushed_after_a_step() -> None:
    flat = flat_at(1.0)
    contribution = PushParameters(flat, lr=0.1)
    contribution.into[:] = 3.0
    contribution.pulled(share=0.5, lent=None)
    slope_of_half_square(flat)
    assert contribution.to_push() == pytest.approx([2.7])


def test_elastic_takes_the_gradient_before_the_move() -> None:
    """x = 1, x̃ = 0, η = 0.1, α = 0.5: x ← 1 − 0.1·1 − 0.5·(1 − 0) = 0.4; after the move it would be 0.45."""
    flat = flat_at(1.0)
    contribution = PushElastic(flat, lr=0.1, moving_rate=0.5)
    contribution.into[:] = 0.0
    contribution.pulled(share=1.0, lent=None)
    slope_of_half_square(flat)
    assert contribution.to_push().tolist() == [0.5], "what the centre moves by"
    assert flat.values_np == pytest.approx([0.4])


def test_an_iteration_without_exchange_is_plain_sgd() -> None:
    flat = flat_at(1.0)
    contribution = PushElastic(flat, lr=0.1, moving_rate=0.5, period=3)
    for expected in (0.9, 0.81):
        slope_of_half_square(flat)
        contribution.step_alone()
        assert flat.values_np == pytest.approx([expected])


def test_without_elasticity_the_workers_train_apart() -> None:
    flat = flat_at(1.0)
    contribution = PushElastic(flat, lr=0.1, moving_rate=0.0)
    for centre in (0.0, 100.0):
        contribution.into[:] = centre
        contribution.pulled(share=1.0, lent=None)
        slope_of_half_square(flat)
        assert contribution.to_push().tolist() == [0.0]
    assert flat.values_np == pytest.approx([0.81])


class Exchange:
    """Workers with their own parameters around one real shard."""

    def __init__(self, policy: Policy, starts: list[float], lr: float, moving_rate: float, centre: float) -> None:
        self.values = np.array([centre])
        self.shard = Shard(self.values, [KeyRange(0, 1)], policy, Add(), None, None, self._reply)
        self.workers = [PushElastic(flat_at(x), lr, moving_rate) for x in starts]
        self.clocks = dict.fromkeys(range(len(starts)), 0)
        self.pushed: dict[int, np.ndarray] = {}

    @property
    def sum(self) -> float:
        return float(self.values[0] + sum(worker.flat.values_np[0] for worker in self.workers))

    def pull(self, worker: int, share: float) -> None:
        self.share = share
        self.shard.pull(Header(Kind.PULL, worker=worker), now=0.0)

    def push(self, worker: int, share: float) -> None:
        slope_of_half_square(self.workers[worker].flat)
        pushed = self.workers[worker].to_push()
        header = Header(Kind.PUSH, worker=worker, clock=self.clocks[worker], share=share)
        self.clocks[worker] += 1
        self.shard.push(header, Gradient([pushed]), now=0.0)

    def _reply(self, answer: Header) -> None:
        if answer.kind == Kind.GRANT:
            self.workers[answer.worker].into[:] = self.values
            self.workers[answer.worker].pulled(self.share, lent=None)


def test_a_synchronous_exchange_is_the_papers() -> None:
    """x̃ ← (1−β)x̃ + β·mean x, with β = pα, from the workers' parameters before their steps."""
    starts, beta = [1.0, 2.0, 6.0], 0.9
    exchange = Exchange(BSP(range(3)), starts, lr=0.1, moving_rate=beta, centre=10.0)
    for worker in range(3):
        exchange.pull(worker, 1 / 3)
    for worker in range(3):
        exchange.push(worker, 1 / 3)
    assert exchange.values == pytest.approx([(1 - beta) * 10.0 + beta * 3.0])
    for worker, x in zip(exchange.workers, starts, strict=True):
        assert worker.flat.values_np == pytest.approx([x - 0.1 * x - beta / 3 * (x - 10.0)])


@given(
    st.sampled_from([BSP, Asynchronous, lambda workers: SSP(workers, 0), lambda workers: SSP(workers, 1)]),
    st.lists(st.floats(-10, 10), min_size=1, max_size=4),
    st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    st.floats(0, 1),
    st.booleans(),
)
def test_an_exchange_conserves_the_sum(make, starts, shares, moving_rate, one_leaves) -> None:  # type: ignore[no-untyped-def]
    """For any shares of the workers, also when they are less than a batch because a worker has left."""
    exchange = Exchange(make(range(len(starts))), starts, 0.0, moving_rate, centre=4.0)
    before = exchange.sum
    workers = list(range(len(starts)))
    for number in range(3):
        if one_leaves and number == 1 and len(workers) > 1:
            exchange.shard.clean(workers.pop(), now=0.0)
        for worker in workers:
            exchange.pull(worker, shares[worker])
        for worker in workers:
            exchange.push(worker, shares[worker])
    for worker in workers:
        exchange.shard.clean(worker, now=0.0)
    assert exchange.sum == pytest.approx(before, abs=1e-9)
