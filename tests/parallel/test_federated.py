"""Federated averaging on ranks: the same result for any number of ranks, plain or secure; its bytes; refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole import LaunchError, Run, UsageError, launch
from farandole.federated.clients import host, participants, survivors

RECIPE: dict[str, Any] = {"steps": 4, "hidden": 16, "clients": 9, "per_round": 4}
PARAMETERS = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """The same training on one to four ranks."""
    folder = tmp_path_factory.mktemp("federated")
    return {ranks: launch("federated", ranks, **RECIPE, out=folder / str(ranks)) for ranks in (1, 2, 3, 4)}


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.metrics]


def test_the_number_of_ranks_does_not_change_the_model(runs: dict[int, Run]) -> None:
    for ranks, run in runs.items():
        assert len(set(run.summary.params_sha256 or [])) == 1
        assert np.allclose(losses(run), losses(runs[2]), rtol=1e-4)
        if ranks > 1:  # one rank alone computes with several threads
            assert run.summary.params_sha256 == [(runs[2].summary.params_sha256 or [])[0]] * ranks, "to the bit"


def test_a_secure_sum_trains_the_same_model_also_when_clients_are_lost(runs: dict[int, Run], tmp_path: Path) -> None:
    fewer = launch("federated", 3, **RECIPE, lost=0.25, threshold=None, out=tmp_path / "fewer")
    assert losses(fewer) != losses(runs[3])
    for lost, plain in ((0.0, runs[3]), (0.25, fewer)):  # with these two or more are left in every round
        secure = launch("federated", 3, **RECIPE, lost=lost, secure=True, threshold=2, out=tmp_path / f"secure {lost}")
        assert len(set(secure.summary.params_sha256 or [])) == 1
        assert np.allclose(losses(secure), losses(plain), rtol=1e-4)
        assert sum(secure.summary.bytes_sent or []) == secure_bytes(3, lost)


def secure_bytes(ranks: int, lost: float) -> int:
    """Bytes: the model down a tree; in each round three tables up and down a tree, and the vectors of other ranks."""
    steps, per_round = RECIPE["steps"], RECIPE["per_round"]
    total = (steps + 1) * (ranks - 1) * 4 * PARAMETERS
    for number in range(steps):
        left = survivors(number, participants(number, RECIPE["clients"], per_round, seed=0), lost, seed=0)
        total += 2 * (ranks - 1) * (512 * per_round + (132 + 66) * per_round**2)
        total += sum(8 * (PARAMETERS + 1) for client in left if host(client, ranks) != 0)
    return total


def test_below_the_threshold_a_round_changes_nothing(tmp_path: Path) -> None:
    run = launch("federated", 2, **RECIPE, lost=0.5, secure=True, threshold=4, out=tmp_path / "run")
    start = launch("federated", 2, **(RECIPE | {"steps": 1}), lost=0.999, out=tmp_path / "start")
    assert all(line["clients"] < 4 for line in run.metrics)
    assert run.summary.params_sha256 == start.summary.params_sha256


def test_a_diverged_client_is_reported_with_and_without_a_secure_sum(tmp_path: Path) -> None:
    plain = launch("federated", 2, **RECIPE, lr=1e9, out=tmp_path / "plain").summary
    assert plain.final_loss is None, "null, since it is not finite"
    assert plain.diverged is not None
    assert plain.diverged["rank"] in (0, 1)
    refusal = r"rank \d at step \d cannot go on: client \d has diverged, and --secure .*: give a smaller --lr"
    with pytest.raises(LaunchError, match=refusal):
        launch("federated", 2, **RECIPE, lr=1e9, secure=True, out=tmp_path / "secure")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_bytes_sent_equal_the_formulas(runs: dict[int, Run], ranks: int) -> None:
    """Bytes: the model down a tree in each round and at the end; a vector up from each client of another rank."""
    summary = runs[ranks].summary
    away = [
        client
        for number in range(RECIPE["steps"])
        for client in participants(number, RECIPE["clients"], RECIPE["per_round"], seed=0)
        if host(client, ranks) != 0
    ]
    down = (RECIPE["steps"] + 1) * (ranks - 1) * 4 * PARAMETERS
    assert summary.bytes_sent
    assert sum(summary.bytes_sent) == down + len(away) * 4 * (PARAMETERS + 1)


def test_label_skew_slows_learning_and_does_not_prevent_it(tmp_path: Path) -> None:
    longer = {"steps": 15, "per_round": 5, "clients": 20, "hidden": 64, "epochs": 3}
    alike = launch("federated", 2, **longer, concentration="inf", out=tmp_path / "alike").summary
    unlike = launch("federated", 2, **longer, concentration=0.1, out=tmp_path / "unlike").summary
    assert alike.test_accuracy is not None
    assert unlike.test_accuracy is not None
    assert alike.test_accuracy > 0.85
    assert alike.test_accuracy > unlike.test_accuracy > 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_round": 10}, "--per-round 10: there are 9 clients; give as many or fewer"),
        ({"threshold": 2}, "--threshold 2 is for --secure: give both, or neither"),
        ({"threshold": 5, "secure": True}, "--threshold 5: a round has 4 clients; give as many or fewer"),
        ({"threshold": 1, "secure": True}, "--threshold 1: with --secure the sum of one client would be its vector"),
        ({"per_round": 1, "secure": True}, "--per-round 1: with --secure the sum of one client would be its vector"),
        ({"clients": 5000}, "--clients 5000: must be from 1 to the"),
        ({"data": "pydoc", "model": "transformer"}, "has no classes to divide: give --concentration inf"),
    ],
)
def test_bad_input_is_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        launch("federated", 1, **(RECIPE | options), out=tmp_path / "run")
