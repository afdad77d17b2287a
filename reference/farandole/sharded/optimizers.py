"""Optimizers that move a unit's part by itself, element by element; those that need whole matrices are in `muon`."""

from __future__ import annotations

from farandole.models.optimizers import MakeOptimizer
from farandole.sharded.unit import MakeForUnit


def on_parts(make_optimizer: MakeOptimizer) -> MakeForUnit:
    """Return what makes such an optimizer for each unit."""
    return lambda unit: make_optimizer(unit.shard, unit.shard_gradient)
