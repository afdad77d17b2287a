"""Flat buffers: one memory, seen by torch and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from farandole.data import datasets
from farandole.models.choices import build
from farandole.models.options import TrainingOptions
from farandole.runtime.buffers import FlatBuffers, sha256


@pytest.mark.parametrize(("model", "data"), [("mlp", "digits"), ("cnn", "digits"), ("transformer", "pydoc")])
def test_flat_views_and_tensors_are_the_same_memory(model: Any, data: Any) -> None:
    torch.manual_seed(0)
    module = build(TrainingOptions(model=model, data=data, hidden=16))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    flat = FlatBuffers(module)
    for parameter, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
    module(torch.from_numpy(datasets.load(data).inputs[:5])).square().sum().backward()
    joined = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])
    assert joined.abs().sum() > 0
    assert np.array_equal(flat.gradients_np, joined.numpy())

    flat.gradients_np[:] = 1.0
    flat.values.add_(flat.gradients, alpha=-0.5)
    for parameter, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, old - 0.5)
    flat.zero_gradients()
    assert all(not parameter.grad.any() for parameter in module.parameters())


def test_a_digest_notices_one_bit() -> None:
    module = nn.Linear(3, 2)
    before = sha256(module)
    assert sha256(module) == before
    with torch.no_grad():
        module.bias[1] = torch.nextafter(module.bias[1], torch.tensor(9.0))
    assert sha256(module) != before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gradients_are_staged_through_pinned_memory() -> None:
    module = nn.Linear(3, 2).cuda()
    flat = FlatBuffers(module)
    module(torch.rand(5, 3).cuda()).sum().backward()
    assert all(torch.from_numpy(array).is_pinned() for array in (flat.gradients_np, flat.values_np))
    flat.to_host()
    assert np.array_equal(flat.gradients_np, flat.gradients.cpu().numpy())
    flat.gradients_np[:] = 7
    flat.from_host()
    assert (flat.gradients == 7).all()
