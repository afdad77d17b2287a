"""Weight gradients that are computed later are those of `nn.Linear`, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from farandole.model_parallel.deferred import DeferredLinear, WeightGradients, defer_weight_gradients


def whole_numbers(*shape: int, seed: int) -> Tensor:
    """Float64 in which sums of products are exact in any order."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).double()


def network(bias: bool) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(5, 4, bias), nn.ReLU(), nn.Sequential(nn.Linear(4, 3, bias))).double()
    for number, parameter in enumerate(layers.parameters()):
        parameter.data = whole_numbers(*parameter.shape, seed=number)
    return layers


def backward(layers: nn.Module, x: Tensor) -> Tensor:
    """Returns the gradient of the inputs."""
    x = x.clone().requires_grad_()
    result = layers(x)
    result.backward(whole_numbers(*result.shape, seed=9))
    assert x.grad is not None
    return x.grad


def gradients(layers: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in layers.parameters()]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 5)], ids=["samples", "samples of tokens"])
def test_they_come_when_asked_for_and_add_up_over_micro_batches(bias: bool, shape: tuple[int, ...]) -> None:
    plain, late = network(bias), WeightGradients(hold=lambda tensor: tensor)
    deferred = defer_weight_gradients(network(bias), late)
    assert sum(isinstance(layer, DeferredLinear) for layer in deferred.modules()) == 2
    for micro_batch in (0, 1):
        x = whole_numbers(*shape, seed=10 + micro_batch)
        with late.collecting(micro_batch):
            assert torch.equal(backward(deferred, x), backward(plain, x)), "that of the inputs comes at once"
    assert gradients(deferred) == [None] * len(list(plain.parameters()))
    late.compute(1)
    assert gradients(deferred)[0] is not None
    assert not torch.equal(gradients(deferred)[0], gradients(plain)[0])  # type: ignore[arg-type]
    late.compute(0)
    assert all(torch.equal(found, right) for found, right in zip(gradients(deferred), gradients(plain), strict=True))  # type: ignore[arg-type]


def test_where_nothing_is_put_off_they_come_at_once() -> None:
    plain, x = network(True), whole_numbers(6, 5, seed=10)
    deferred = defer_weight_gradients(network(True), WeightGradients(hold=lambda tensor: tensor))
    backward(plain, x)
    backward(deferred, x)
    assert all(torch.equal(found, right) for found, right in zip(gradients(deferred), gradients(plain), strict=True))  # type: ignore[arg-type]


def test_what_is_kept_is_shown_to_whoever_counts_it() -> None:
    held: list[tuple[int, ...]] = []
    late = WeightGradients(hold=lambda tensor: held.append(tuple(tensor.shape)))
    with late.collecting(0):
        backward(defer_weight_gradients(network(True), late), whole_numbers(6, 5, seed=10))
    assert sorted(held) == [(6, 3), (6, 4), (6, 4), (6, 5)], "each layer's inputs, and its outputs' gradient"
