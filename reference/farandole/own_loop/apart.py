"""Ranks that take their own steps, and meet between two batches: what `local_sgd` and `gossip` share.

The user's optimizer stays as it is. Ranks meet after the loop's body, so a step that the body leaves out, as
`GradScaler` does where a gradient is not finite, keeps no rank waiting.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from farandole.own_loop.loop_method import LoopMethod, refuse, trainable
from farandole.runtime.world import World


class Apart(LoopMethod):
    """Each rank trains its own parameters.

    Attributes:
        parameters: those that are trained.
        share: this rank's part of the batch, as a share of the whole.
    """

    def __init__(self, world: World, options: Any) -> None:
        super().__init__(world, options)
        self.parameters: list[nn.Parameter] = []
        self.share = 1 / world.size

    def optimizer(self, inner: torch.optim.Optimizer, **settings: Any) -> torch.optim.Optimizer:
        """Return `inner`: each rank takes its own steps."""
        refuse(settings, "each rank takes its own steps")
        self.parameters += trainable(inner)
        return inner

    def weigh(self, share: float) -> None:
        self.share = share

    def collected(self) -> Tensor:
        """Return the parameters as one vector in the host's memory, float64 if any of them is, else float32."""
        with torch.no_grad():
            is_double = any(each.dtype == torch.float64 for each in self.parameters)
            kind = torch.float64 if is_double else torch.float32
            return torch.cat([each.reshape(-1).to("cpu", kind) for each in self.parameters])

    def hand_out(self, vector: Tensor) -> None:
        """Copy the parts of `vector` to the parameters."""
        with torch.no_grad():
            parts = vector.split([each.numel() for each in self.parameters])
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))
