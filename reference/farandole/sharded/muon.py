"""Muon over divided parameters: each rank remembers its part, and the ranks gather the directions.

The orthogonal direction of a matrix depends on all of its elements (`models.muon`). A rank has the momentum of its part
only, as of the gradient. So of each unit that has matrices the ranks gather the momentum, as they gather parameters; a
rank orthogonalises the matrices of which it has a part, takes its part of the result, and forgets the rest.

Memory: beside what it remembers, a step holds one unit's gathered vector and the work of one matrix at a time
(`models.muon.of_a_step`).

Cost: the all-gather of a unit's vector once more in every step, (N−1)/N·n: half as much again as ZeRO-1 or 2 send, and
a third as ZeRO-3. A matrix that lies across several ranks is orthogonalised by each of them.
Source: Liu et al., "Muon is scalable for LLM training", 2025, section 2.3 (distributed Muon).
"""

from __future__ import annotations

from torch import nn

from farandole.models.muon import Muon, hidden, matrices
from farandole.sharded.unit import MakeForUnit, Unit


def for_units(model: nn.Module, lr: float, l2: float = 0.0, decay: float = 0.0) -> MakeForUnit:
    """Return what makes the optimizer of each unit of `model`; ask before the model is divided."""
    wanted = hidden(model)

    def make(unit: Unit) -> Muon:
        its = matrices(unit.parameters, wanted)

        def hold(numbers: int) -> None:
            unit.meter.hold("optimizer_state", numbers * unit.shard.itemsize)

        optimizer = Muon(
            unit.shard, unit.shard_gradient, lr, its, unit.own,
            gather=lambda part: unit.gathered(part, part.dtype, part.device),
            hold=hold if unit.shard.device == unit.device else None,
        )  # fmt: skip
        optimizer.l2, optimizer.decay = l2, decay
        return optimizer

    return make
