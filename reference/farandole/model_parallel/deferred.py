"""Linear layers whose weights' gradient can be computed later than their inputs' gradient.

Backward through y = x Wᵀ + b takes two products of equal cost, and the layers before wait for one
of them only:

    ∂x = ∂y W            at once
    ∂W += ∂yᵀ x, ∂b += Σ ∂y    whenever there is time

For that x and ∂y are kept until then. All other layers compute everything at once: their
parameters' gradients are cheap. Source: Qi et al., "Zero bubble pipeline parallelism", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

Work = Callable[[], None]


class WeightGradients:
    """The products that are left to be computed, by whatever names the occasion (a micro-batch).

    Args:
        hold: called with each tensor that is kept until then; what it returns lives as long.
    """

    def __init__(self, hold: Callable[[Tensor], object]) -> None:
        self.hold = hold
        self._left: dict[Hashable, list[tuple[Work, list[object]]]] = {}
        self._collecting: list[tuple[Work, list[object]]] | None = None

    @contextmanager
    def collecting(self, occasion: Hashable) -> Iterator[None]:
        """In the body, weights' gradients are put off."""
        self._collecting = self._left[occasion] = []
        try:
            yield
        finally:
            self._collecting = None

    def add(self, work: Work, *needs: Tensor) -> None:
        """Put `work` off and hold what it needs, or do it now where nothing is being put off."""
        if self._collecting is None:
            work()
        else:
            self._collecting.append((work, [self.hold(tensor) for tensor in needs]))

    def compute(self, occasion: Hashable) -> None:
        """Do what was put off on that occasion."""
        with torch.no_grad():
            for work, _ in self._left.pop(occasion):
                work()


class DeferredLinear(nn.Module):
    """An `nn.Linear` with the same parameters, whose weights' gradient goes to `late`."""

    def __init__(self, layer: nn.Linear, late: WeightGradients) -> None:
        super().__init__()
        self.weight, self.bias, self.late = layer.weight, layer.bias, late

    def forward(self, x: Tensor) -> Tensor:
        # The weight is passed although the layer has it: what needs a gradient must be seen by autograd.
        result: Tensor = _Linear.apply(x, self.weight, self)  # type: ignore[no-untyped-call]
        return result


class _Linear(torch.autograd.Function):
    """x Wᵀ + b, whose backward pass leaves the weights' part to be done later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: DeferredLinear) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return linear(x, weight, layer.bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x,), layer = ctx.saved_tensors, ctx.layer

        def weights() -> None:
            rows = gradient.flatten(0, -2)
            _accumulate(layer.weight, rows.T @ x.flatten(0, -2))
            if layer.bias is not None:
                _accumulate(layer.bias, rows.sum(0))

        layer.late.add(weights, x, gradient)
        return (gradient @ layer.weight if ctx.needs_input_grad[0] else None), None, None


def defer_weight_gradients(module: nn.Module, late: WeightGradients) -> nn.Module:
    """`module` with every linear layer in it replaced; the parameters stay the same objects."""
    if type(module) is nn.Linear:
        return DeferredLinear(module, late)
    for name, child in module.named_children():
        setattr(module, name, defer_weight_gradients(child, late))
    return module


def _accumulate(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient
