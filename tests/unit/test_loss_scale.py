"""The loss scale equals torch's own."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.data_parallel.loss_scale import FIRST, LossScale


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_it_is_torchs(finite: list[bool], patience: int) -> None:
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=patience)
    ours = LossScale(2.0**40, patience)  # torch's may fall below 1
    for each in finite:
        before = parameter.item()
        optimizer.zero_grad()
        theirs.scale(parameter.sum() * (1.0 if each else float("inf"))).backward()
        theirs.step(optimizer)
        theirs.update()
        assert each == (parameter.item() != before)
        ours.observe(each)
        assert ours.value == theirs.get_scale()
    assert ours.skipped == finite.count(False)


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=30), st.integers(0, 30), st.integers(1, 5))
def test_restored_it_goes_on_as_if_nothing_had_been(finite: list[bool], before: int, patience: int) -> None:
    whole, first, second = (LossScale(2.0**10, patience) for _ in range(3))
    for each in finite[:before]:
        whole.observe(each)
        first.observe(each)
    second.restore(json.loads(json.dumps(first.state())))
    for each in finite[before:]:
        whole.observe(each)
        second.observe(each)
        assert second.value == whole.value
    assert second.state() == whole.state()
    assert second.skipped == finite.count(False)


def test_it_does_not_fall_below_one() -> None:
    scale = LossScale(2.0)
    for _ in range(3):
        scale.observe(False)
        assert scale.value == 1.0


def test_it_begins_at_65536_and_waits_2000_steps() -> None:
    scale = LossScale()
    assert scale.value == FIRST == 65536
    for _ in range(1999):
        scale.observe(True)
    assert scale.value == FIRST
    scale.observe(True)
    assert scale.value == 2 * FIRST


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_what_it_is_for(kind: torch.dtype) -> None:
    """A gradient that float16 loses, and bfloat16 does not; a step that only float32 keeps."""
    lost = torch.tensor(1e-8).to(kind)
    kept = torch.tensor(1e-8 * FIRST).to(kind).float() / FIRST
    assert (lost == 0) == (kind == torch.float16)
    assert kept == pytest.approx(1e-8, rel=1e-2)
    assert torch.tensor(1.0).to(kind) + torch.tensor(2.0**-12).to(kind) == 1
    assert torch.tensor(1.0) + torch.tensor(2.0**-12) > 1
