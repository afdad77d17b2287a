"""Synchronous SGD is single-process SGD on the union batch, step by step; so are its twins."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch

# After 40 steps from sums added in another order: rounding, some 100 units in the last place.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5}


def check(answer: dict[str, dict[str, float]], kind: str, ranks: int) -> None:
    for name, found in answer.items():
        assert found["difference"] <= TOLERANCE[kind], name
        assert found["digests"] == 1, f"{name}: {ranks} ranks, {found['digests']} different models"
        assert found["moved"] > 0.05, "the model was trained at all"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_the_single_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    check(under_mpirun("sync_equals_single.py", ranks, "float64", "equal", "ring", "central", "mpi"), "float64", ranks)


def test_float32_stays_within_rounding(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("sync_equals_single.py", 4, "float32", "equal", "ring"), "float32", 4)


def test_unequal_shares_are_weighted(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("sync_equals_single.py", 3, "float64", "6,3,1", "ring", "ddp")
    check(answer, "float64", 3)


def test_ddp_is_the_same_method(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("sync_equals_single.py", 4, "float32", "equal", "ddp"), "float32", 4)


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")
@pytest.mark.parametrize(("ranks", "capabilities"), [(4, "equal"), (3, "6,3,1")])
def test_horovod_is_the_same_method(under_mpirun: Callable[..., Any], ranks: int, capabilities: str) -> None:
    check(under_mpirun("sync_equals_single.py", ranks, "float32", capabilities, "horovod"), "float32", ranks)


def test_digits_are_learned_and_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    runs = [launch("sync_sgd", 4, seed=1, out=tmp_path / str(number)).summary for number in range(2)]
    assert runs[0].test_accuracy is not None
    assert runs[0].test_accuracy >= 0.95
    for summary in runs:
        assert summary.params_sha256 is not None
        assert len(set(summary.params_sha256)) == 1
    assert runs[0].params_sha256 == runs[1].params_sha256
    other = launch("sync_sgd", 4, seed=2, steps=5, out=tmp_path / "other").summary
    assert other.params_sha256 != runs[0].params_sha256
