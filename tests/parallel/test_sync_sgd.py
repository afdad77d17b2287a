"""Synchronous SGD is single-process SGD on the union batch, step by step; so are its twins."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole import launch
from farandole.data import datasets
from farandole.errors import UsageError

# After 20 steps from sums added in another order: rounding, some 100 units in the last place.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5}
NO_HOROVOD = pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")


def check(answer: dict[str, dict[str, float]], kind: str, ranks: int) -> None:
    for name, found in answer.items():
        rounding = 100 if name.startswith("adam") else 1  # it divides by roots that may be small
        assert found["difference"] <= rounding * TOLERANCE[kind], name
        assert found["digests"] == 1, f"{name}: {ranks} ranks, {found['digests']} different models"
        assert found["moved"] > 0.05, "the model was trained at all"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_the_single_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    strategies = ("ring", "central", "mpi", "local", "overlapped in 3")
    answer = under_mpirun("sync_equals_single.py", ranks, "float64", "digits", "equal", *strategies)
    check(answer, "float64", ranks)
    assert answer["overlapped in 3"]["sent"] == answer["ring"]["sent"], "micro-batches send nothing more"


def test_float32_stays_within_rounding(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("sync_equals_single.py", 4, "float32", "digits", "equal", "ring"), "float32", 4)


def test_unequal_shares_are_weighted(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("sync_equals_single.py", 3, "float64", "digits", "6,3,1", "ring", "ddp", "local", "ddp in 2")
    check(answer, "float64", 3)


def test_ddp_equals_the_single_process(under_mpirun: Callable[..., Any]) -> None:
    check(under_mpirun("sync_equals_single.py", 4, "float32", "digits", "equal", "ddp"), "float32", 4)


def test_the_language_model_equals_the_single_process_too(under_mpirun: Callable[..., Any]) -> None:
    strategies = ("ring", "overlapped", "local")
    check(under_mpirun("sync_equals_single.py", 3, "float64", "pydoc", "6,3,1", *strategies), "float64", 3)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_step_equals_the_single_process_with_another_optimizer(
    under_mpirun: Callable[..., Any], ranks: int
) -> None:
    """The penalty of L2 counts once, not once a rank."""
    optimizers = ("momentum", "adam, L2", "adam, decay")
    check(under_mpirun("sync_equals_single.py", ranks, "float64", "digits", "equal", *optimizers), "float64", ranks)


@NO_HOROVOD
@pytest.mark.parametrize(("ranks", "capabilities"), [(4, "equal"), (3, "6,3,1")])
def test_horovod_equals_the_single_process(under_mpirun: Callable[..., Any], ranks: int, capabilities: str) -> None:
    strategies = ("horovod", "horovod in 3")
    answer = under_mpirun("sync_equals_single.py", ranks, "float32", "digits", capabilities, *strategies)
    check(answer, "float32", ranks)


def test_digits_are_learned_and_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    learned = launch("sync_sgd", 4, seed=1, out=tmp_path / "learned")
    assert learned.summary.test_accuracy is not None
    assert learned.summary.test_accuracy >= 0.95
    assert len(set(learned.summary.params_sha256 or [])) == 1
    one, same, other = (
        launch("sync_sgd", 4, seed=seed, steps=30, out=tmp_path / str(number)) for number, seed in enumerate((1, 1, 2))
    )
    assert [line["loss"] for line in one.metrics] == [line["loss"] for line in learned.metrics[:30]]
    assert one.summary.params_sha256 == same.summary.params_sha256
    assert one.summary.params_sha256 != other.summary.params_sha256


def test_the_language_model_beats_the_entropy_of_single_characters(tmp_path: Path) -> None:
    run = launch(
        "sync_sgd", 2, data="pydoc", model="transformer", hidden=32, depth=1, batch=32, steps=150, out=tmp_path / "run"
    )
    targets = datasets.split(datasets.load("pydoc"), seed=0).train.targets
    frequencies = np.bincount(targets.ravel()) / targets.size
    frequencies = frequencies[frequencies > 0]
    entropy = -(frequencies * np.log(frequencies)).sum()  # the loss of a model without inputs
    last = np.mean([line["loss"] for line in run.metrics[-20:]])
    assert last < entropy - 0.4
    assert run.summary.test_accuracy is not None
    assert run.summary.test_accuracy > frequencies.max() + 0.05
    assert run.summary.params_sha256 is not None
    assert len(set(run.summary.params_sha256)) == 1


@pytest.mark.parametrize("scenario", ["ddp_sgd", pytest.param("horovod_sgd", marks=NO_HOROVOD)])
def test_the_twins_train_the_language_model(scenario: str, tmp_path: Path) -> None:
    options = {"data": "pydoc", "model": "transformer", "hidden": 16, "depth": 1, "batch": 8, "steps": 5}
    ours, twin = (launch(name, 2, out=tmp_path / name, **options).summary for name in ("sync_sgd", scenario))
    assert twin.final_loss == pytest.approx(ours.final_loss, rel=1e-5)
    assert twin.test_accuracy == pytest.approx(ours.test_accuracy, abs=1e-3)


def test_nccl_is_refused_where_ranks_have_no_cards(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--backend nccl needs a CUDA card for each rank, .*: use --backend gloo$"):
        launch("ddp_sgd", 2, device="cpu", backend="nccl", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_hold_text_as_well_as_images(tmp_path: Path) -> None:
    options = {"data": "pydoc", "model": "transformer", "hidden": 16, "depth": 1, "batch": 8, "steps": 3}
    summaries = [
        launch("sync_sgd", 2, loading=loading, out=tmp_path / loading, **options).summary
        for loading in ("scatter", "files")
    ]
    assert summaries[0].params_sha256 == summaries[1].params_sha256


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "transformer"}, "give --model mlp or cnn, or --data pydoc"),
        ({"data": "pydoc", "model": "transformer", "hidden": 40}, "give 32 or 48"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_before_anything_is_written(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        launch("sync_sgd", 2, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
