"""The units of a model: parameters that are gathered together, and those in no unit."""

from __future__ import annotations

import torch
from torch import nn

from farandole.models.transformer import transformer
from farandole.sharded.plan import ROOT, units


def plan(model: nn.Module) -> dict[str, int]:
    """Return each name's number of trained parameters."""
    return {each.name: sum(parameter.numel() for parameter in each.parameters) for each in units(model)}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 3), nn.Linear(3, 7)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.body = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))})


def test_lists_are_opened_and_blocks_are_not() -> None:
    found = plan(transformer((8,), 50, hidden=16, depth=3))
    assert len(found) == 5, "an embedding, three blocks, a head"
    assert ROOT not in found
    assert len(set(found.values())) == 3


def test_tied_parameters_and_those_of_opened_modules_are_the_roots() -> None:
    assert plan(Tied()) == {ROOT: 21 + 1, "head": 7, "body.a": 12, "body.b.0": 16, "body.b.1": 15}


def test_a_single_layer_is_a_root() -> None:
    assert plan(nn.Linear(3, 2)) == {ROOT: 8}
