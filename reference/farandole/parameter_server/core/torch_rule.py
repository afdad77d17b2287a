"""An optimizer of torch as a server's update rule.

It serves optimizers that treat every parameter by itself: SGD with momentum, Adam, AdamW, RMSprop, Adagrad and the
like. Each range of keys is a parameter tensor of its own, so cutting the keys changes nothing.

Not for optimizers that look at a tensor as a whole: LAMB, LARS, Adafactor, Muon, LBFGS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from farandole.parameter_server.core.update_rules import Array, Rows

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class TorchRule:
    """The rule of one table, for dense gradients.

    Args:
        make: returns an optimizer of the given parameters.
    """

    def __init__(self, make: MakeOptimizer) -> None:
        self.make = make
        self._of_range: dict[tuple[Any, Any], tuple[nn.Parameter, torch.optim.Optimizer]] = {}

    def begin(self) -> None:
        """Do nothing: an optimizer counts its own steps."""

    def apply(self, values: Array, rows: Rows, total: Array, weight: float) -> None:
        """Move `values[rows]`, a range of keys, by one step."""
        assert isinstance(rows, slice), "an optimizer of torch has no rule for single rows"
        key = (rows.start, rows.stop)
        memory = torch.from_numpy(values[rows])
        if key not in self._of_range:
            parameter = nn.Parameter(memory)
            self._of_range[key] = parameter, self.make([parameter])
        parameter, optimizer = self._of_range[key]
        parameter.data = memory  # a table may lie in two places in turns
        parameter.grad = torch.from_numpy(total)
        optimizer.step()
        parameter.grad = None
