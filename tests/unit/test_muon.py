"""Muon: orthogonal directions by an odd polynomial of the singular values; as torch's; in parts as in one."""

from __future__ import annotations

import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from farandole.models.muon import (
    STEPS,
    A,
    B,
    C,
    Matrix,
    Muon,
    hidden,
    matrices,
    numbers,
    of_a_step,
    orthogonalised,
    work,
)
from farandole.runtime.buffers import FlatBuffers

LR, DECAY = 0.02, 0.1


def by_singular_values(matrix: Tensor) -> Tensor:
    """The same polynomial, of each singular value for itself."""
    u, s, v = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for _ in range(STEPS):
        s = A * s + B * s**3 + C * s**5
    return (u * s) @ v


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (1, 6), (40, 24)])
def test_it_is_the_polynomial_of_every_singular_value(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = orthogonalised(matrix)
    torch.testing.assert_close(found, by_singular_values(matrix), rtol=0, atol=1e-12)
    torch.testing.assert_close(orthogonalised(1000 * matrix), found, rtol=0, atol=1e-12)


class Memory(TorchDispatchMode):
    """Counts the bytes of the tensors that are made and still there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            storage = each.untyped_storage()
            if storage.data_ptr() not in known:
                self._hold(storage.nbytes())
                weakref.finalize(storage, self._hold, -storage.nbytes())
        return found

    def _hold(self, nbytes: int) -> None:
        self.now += nbytes
        self.most = max(self.most, self.now)


@pytest.mark.parametrize("shape", [(32, 32), (8, 24), (24, 8)])
def test_it_holds_no_more_than_it_says(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with Memory() as memory:
        orthogonalised(matrix)
    assert memory.most == pytest.approx(4 * work(*shape), abs=16), "and a norm"


def test_a_step_holds_the_gathered_vector_and_the_work_of_one_matrix() -> None:
    its, values, told = [Matrix(2, 3, 4), Matrix(14, 2, 2)], torch.randn(20), [0]
    for own, beside in ((slice(0, 6), work(3, 4)), (slice(14, 20), work(2, 2)), (slice(0, 2), 2)):
        gather = lambda part, own=own: torch.nn.functional.pad(part, (own.start, 20 - own.stop))  # noqa: E731
        hold = lambda number: told.append(told[-1] + number)  # noqa: E731
        Muon(values[own], torch.ones(own.stop - own.start), LR, its, own, gather, hold=hold).step()
        assert max(told) == of_a_step(its, own, 20) == 20 + beside
        assert told.pop() == 0
        del told[1:]
    assert of_a_step([], slice(0, 20), 20) == 0


def test_long_and_short_directions_come_out_alike() -> None:
    noise = torch.Generator().manual_seed(2)
    u, _ = torch.linalg.qr(torch.randn(16, 16, generator=noise, dtype=torch.float64))
    matrix = u * torch.logspace(0, -2, 16, dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert 0.65 < values.min() < values.max() < 1.25
    assert not orthogonalised(torch.zeros(3, 4)).any(), "of no direction there is none"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(11, 6), nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3)
    )


def test_hidden_matrices_are_neither_embedded_nor_last_nor_vectors() -> None:
    model = network()
    assert hidden(model) == {model[1].weight, model[4].weight}
    parameters = list(model.parameters())
    assert matrices(parameters, hidden(model)) == [Matrix(66, 8, 6), Matrix(66 + 48 + 8 + 16, 8, 8)]
    conv = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    assert matrices(list(conv.parameters()), hidden(conv)) == [Matrix(0, 4, 75), Matrix(304, 2, 36)]


def loss(model: nn.Module, step: int) -> Tensor:
    noise = torch.Generator().manual_seed(step)
    words, targets = torch.randint(11, (20,), generator=noise), torch.randint(3, (20,), generator=noise)
    return nn.functional.cross_entropy(model(words), targets)


def test_it_moves_as_torchs_muon_and_adamw_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding, if torch's directions are computed in the parameters' own type, too."""
    monkeypatch.setattr(Tensor, "bfloat16", lambda self: self)
    model = network()
    twin = deepcopy(model)
    flat = FlatBuffers(model)
    its = Muon(flat.values, flat.gradients, LR, matrices(list(model.parameters()), hidden(model)))
    its.decay = DECAY
    fast = hidden(twin)
    slow = [each for each in twin.parameters() if each not in fast]
    theirs = [
        torch.optim.Muon(list(fast), lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(slow, lr=LR, weight_decay=DECAY),
    ]
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    for step in range(5):
        flat.zero_gradients()
        loss(model, step).backward()
        its.step()
        for each in theirs:
            each.zero_grad()
        loss(twin, step).backward()
        for each in theirs:
            each.step()
    for (name, ours), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
        moved, apart = (ours - before[name]).norm(), (ours - expected).norm()
        assert moved > 0.02, name
        assert apart < 1e-4 * moved, name


def test_it_remembers_one_number_for_each_element_of_a_matrix() -> None:
    model = network()
    flat = FlatBuffers(model)
    its = matrices(list(model.parameters()), hidden(model))
    whole = slice(0, len(flat.values))
    parts = slice(0, 100), slice(100, len(flat.values))
    assert sum(numbers(its, part) for part in parts) == numbers(its, whole) < 2 * len(flat.values)
    state = Muon(flat.values, flat.gradients, LR, its).state
    assert sum(each.numel() for each in state.values() if each.dim()) == numbers(its, whole)
