"""Flat buffers: one memory, seen by torch and numpy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from farandole.data import datasets
from farandole.data_parallel.mixed_precision import HalfCopy
from farandole.errors import UsageError
from farandole.models.choices import build
from farandole.models.layerwise import maker_for
from farandole.models.options import TrainingOptions
from farandole.runtime.buffers import FlatBuffers, mean_statistics, sha256, trained
from farandole.tasks import classification


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


def test_a_model_computes_in_other_memory_and_comes_back() -> None:
    module = Odd()
    flat = FlatBuffers(module)
    own, gradients = flat.values_np, flat.gradients_np
    others = [own + 1.0, own - 1.0]
    slot = np.full_like(own, np.nan)
    kept = own.copy()
    for other in others:
        before = other.copy()
        flat.lie_in(other, slot)
        flat.zero_gradients()
        (module.factor * module.first.weight.sum()).backward()
        flat.collect()
        np.testing.assert_array_equal(torch.cat([each.detach().reshape(-1) for each in trained(module)]), other)
        assert slot.sum() == pytest.approx(9 * module.factor.item() + module.first.weight.sum().item(), rel=1e-5)
        assert np.shares_memory(module.first.weight.grad.numpy(), slot)
        np.testing.assert_array_equal(other, before)
    flat.lie_in(own, gradients)
    np.testing.assert_array_equal(torch.cat([each.detach().reshape(-1) for each in trained(module)]), kept)
    others[1][:] = np.nan
    np.testing.assert_array_equal(flat.values_np, kept)


def twin_of(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module)


class Odd(nn.Module):
    """Trained, frozen, unused, tied, integer, 0-dimensional and empty parameters, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.frozen = (nn.Linear(3, 3) for _ in range(3))
        self.second.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.factor = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.empty(0, 4))
        self.seen = nn.Parameter(torch.tensor([2**24 + 1]), requires_grad=False)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.factor * self.norm(self.second(self.frozen(self.first(inputs)))).tanh()


ROWS = torch.linspace(-1, 2, 12).reshape(4, 3)


def as_plain(found: nn.Module, right: nn.Module) -> None:
    for (name, its), (_, other) in zip(found.named_parameters(), right.named_parameters(), strict=True):
        assert torch.equal(its.data, other.data), name
        own = torch.zeros_like(its) if its.grad is None else its.grad
        expected = torch.zeros_like(other) if other.grad is None else other.grad
        assert torch.equal(own, expected), name


@pytest.mark.parametrize("unset", [lambda module: module.zero_grad(), lambda module: None], ids=["zero_grad", "kept"])
def test_gradients_are_those_of_plain_autograd_whatever_the_parameters(unset: Callable[[nn.Module], None]) -> None:
    """Also after zero_grad(), which takes every gradient out of the flat vector."""
    module = Odd()
    plain = twin_of(module)
    flat = FlatBuffers(module)
    assert flat.values.numel() == 9 + 3 + 3 + 3 + 1 + 6, "tied once, frozen never"
    for _ in range(2):
        plain.zero_grad()
        plain(ROWS).square().sum().backward()
        flat.zero_gradients()
        unset(module)
        module(ROWS).square().sum().backward()
        flat.to_host()
        as_plain(module, plain)
        trained = [each for each in plain.parameters() if each.requires_grad]
        expected = torch.cat(
            [(torch.zeros_like(each) if each.grad is None else each.grad).reshape(-1) for each in trained]
        )
        assert np.array_equal(flat.gradients_np, expected.numpy())
        assert torch.equal(module.norm.running_mean, plain.norm.running_mean)
    assert int(module.seen) == 2**24 + 1
    assert module.second.weight is module.first.weight


def test_after_zero_grad_alone_the_flat_vector_has_the_new_gradients_and_no_old_ones() -> None:
    module = nn.Linear(3, 2)
    flat = FlatBuffers(module)
    module(ROWS).sum().backward()
    module.zero_grad()
    module(ROWS[:1]).sum().backward()
    module.bias.grad = None
    assert torch.equal(flat.gradients[:6], ROWS[0].repeat(2))
    assert not flat.gradients[6:].any(), "None is 0, not the gradient of the step before"
    module(ROWS[:1]).sum().backward()
    assert torch.equal(flat.gradients[6:], torch.ones(2)), "and is added to again"


def test_a_sparse_gradient_comes_into_the_flat_vector() -> None:
    module = nn.Embedding(4, 2, sparse=True)
    flat = FlatBuffers(module)
    module.zero_grad()
    module(torch.tensor([1, 1, 3])).sum().backward()
    assert flat.gradients.tolist() == [0, 0, 2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "lars", "lars-normalised", "lamb"])
def test_neither_decay_nor_any_optimizer_moves_what_is_frozen(name: str) -> None:
    module = Odd()
    before = twin_of(module)
    flat = FlatBuffers(module)
    optimizer = maker_for(module, name, 0.1, 0.1)(flat.values, flat.gradients)
    module(ROWS).square().sum().backward()
    flat.to_host()
    optimizer.step()
    assert torch.equal(module.frozen.weight, before.frozen.weight)
    assert torch.equal(module.seen, before.seen)
    assert not torch.equal(module.first.weight, before.first.weight)


def test_a_memory_format_and_strides_do_not_change_values() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
    module[1].weight = nn.Parameter(torch.arange(8.0).reshape(4, 2).T.reshape(2, 4, 1, 1))
    plain = twin_of(module)
    flat = FlatBuffers(module)
    images = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4)
    for each in (module, plain):
        each(images).square().sum().backward()
    assert flat.gradients.abs().sum() > 0
    for its, right in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.equal(its, right)
        torch.testing.assert_close(its.grad, right.grad, rtol=1e-3, atol=1e-3)


def test_a_model_of_float64_or_without_parameters() -> None:
    flat = FlatBuffers(nn.Linear(3, 2).double())
    assert flat.gradients_np.dtype == np.float64
    none = FlatBuffers(nn.ReLU())
    none.zero_gradients()
    none.to_host()
    assert len(none.gradients_np) == 0


def mixed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).double())


def shared_storage() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight.data = module[0].weight.data
    return module


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (mixed, "parameter 1.weight is float64 and 0.weight is float32"),
        (lambda: nn.Linear(3, 2).bfloat16(), "parameter weight is bfloat16"),
        (lambda: nn.Linear(3, 2, dtype=torch.complex64), "parameter weight is complex64"),
        (shared_storage, "0.weight and 1.weight share memory"),
    ],
)
def test_what_one_vector_cannot_hold_is_refused_and_left_as_it_was(make: Callable[[], nn.Module], said: str) -> None:
    module = make()
    before = [each.data_ptr() for each in module.parameters()]
    with pytest.raises(UsageError, match=said):
        FlatBuffers(module)
    assert [each.data_ptr() for each in module.parameters()] == before


def test_memory_of_another_type_for_the_gradients_is_refused() -> None:
    with pytest.raises(UsageError, match=r"weight is float64, and the memory for gradients is float32"):
        FlatBuffers(nn.Linear(3, 2).double(), np.zeros(8, np.float32))


def replaced(module: nn.Module) -> None:
    module.load_state_dict({name: each + 1 for name, each in module.state_dict().items()}, assign=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda module: module.double(), r"parameter weight \(float64\) has left the flat buffer \(float32\)"),
        (lambda module: module.bias.requires_grad_(False), "freeze, unfreeze or replace"),
        (replaced, "freeze, unfreeze or replace"),
    ],
)
def test_what_leaves_the_buffer_later_is_refused(change: Callable[[nn.Module], object], said: str) -> None:
    module = nn.Linear(3, 2)
    flat = FlatBuffers(module)
    module.float()  # nothing changes
    flat.zero_gradients()
    change(module)
    with pytest.raises(UsageError, match=said):
        flat.zero_gradients()


def test_a_loaded_state_is_in_the_flat_vector() -> None:
    module = nn.Linear(3, 2)
    flat = FlatBuffers(module)
    module.load_state_dict({"weight": torch.full((2, 3), 7.0), "bias": torch.zeros(2)})
    flat.zero_gradients()
    assert flat.values.tolist() == [7.0] * 6 + [0.0] * 2


def test_half_precision_bears_frozen_and_unused_parameters() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].weight.requires_grad_(False)
    module.extra = nn.Parameter(torch.ones(2))
    half = HalfCopy(module, classification, FlatBuffers(module), "bfloat16")
    half.gradient((ROWS, torch.tensor([0, 1, 1, 0])), 1.0)
    assert module[0].bias.grad is not None
    assert module[0].bias.grad.any()
    assert not module.extra.grad.any()


def test_statistics_of_a_trained_model_are_the_mean_of_the_ranks() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    module(ROWS)
    own, variance = module[1].running_mean.clone(), module[1].running_var.clone()
    mean_statistics(module, lambda sums: sums.__iadd__(4.0), 2)  # another rank's are all 4
    torch.testing.assert_close(module[1].running_mean, (own + 4) / 2)
    torch.testing.assert_close(module[1].running_var, (variance + 4) / 2)
    assert int(module[1].num_batches_tracked) == 1
    mean_statistics(nn.Linear(3, 2), lambda _: pytest.fail("nothing to send"), 2)


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
