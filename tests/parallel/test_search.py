"""A search over the ranks: the same trials with the same result on any number; and only moved trials are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from farandole import Run, launch

OPTIONS: dict[str, Any] = {"trials": 9, "steps": 48, "widths": [8, 16], "hidden": 8}
TEXT: dict[str, Any] = {"data": "pydoc", "model": "transformer", "hidden": 16, "depth": 1, "batch": 8}


def tried(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run.folder / "trials.json").read_text())
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("search", 1, **OPTIONS, out=tmp_path_factory.mktemp("runs") / "alone")


def test_the_better_half_of_the_trials_continues(alone: Run) -> None:
    trials = tried(alone)
    assert sorted(trial["number"] for trial in trials) == list(range(9))
    assert [trial["steps"] for trial in trials] == [48] * 2 + [24] * 1 + [12] * 2 + [6] * 4
    for steps in (48, 24, 12, 6):
        losses = [trial["loss"] for trial in trials if trial["steps"] == steps]
        assert losses == sorted(losses)
    assert alone.summary.final_loss == trials[0]["loss"] == alone.metrics[-1]["loss"]
    assert [line["step"] for line in alone.metrics] == [5, 11, 23, 47]
    used = sum(line["samples"] for line in alone.metrics)
    assert alone.summary.samples_per_s == pytest.approx(used / alone.summary.wall_s)
    assert used < 64 * sum(trial["steps"] for trial in trials), "an epoch's last batches are not whole"
    assert alone.summary.bytes_sent == [0]
    assert alone.summary.test_accuracy > 0.5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_any_number_of_ranks_finds_the_same(alone: Run, ranks: int, tmp_path: Path) -> None:
    run = launch("search", ranks, **OPTIONS, out=tmp_path / "run")
    for ours, its in zip(tried(run), tried(alone), strict=True):
        assert ours["loss"] == pytest.approx(its["loss"], rel=1e-4)
        assert {key: ours[key] for key in ("number", "lr", "hidden", "steps")} == {
            key: its[key] for key in ("number", "lr", "hidden", "steps")
        }
    assert len(set(run.summary.params_sha256)) == 1, "all end with the best"
    assert run.summary.test_accuracy == pytest.approx(alone.summary.test_accuracy, abs=0.02)
    assert 0 < sum(run.summary.messages_sent) <= 5 + 3 + 2, "a message for each trial that moves"
    sizes = {width: 4 * (64 * width + width + width * width + width + width * 10 + 10) for width in (8, 16)}
    sent, messages = sum(run.summary.bytes_sent), sum(run.summary.messages_sent)
    assert messages * sizes[8] <= sent <= messages * sizes[16]


@pytest.mark.parametrize("options", [{"hidden": 8, "lr": 0.2, "accumulate": 3}, TEXT], ids=["digits", "text"])
def test_a_trial_equals_the_training_of_one_process(options: dict[str, Any], tmp_path: Path) -> None:
    """To the bit, although it was interrupted for the comparison."""
    searched = launch("search", 1, trials=3, steps=20, spread=1, **options, out=tmp_path / "search")
    trained = launch("sync_sgd", 1, steps=20, **options, out=tmp_path / "train")
    assert [trial["steps"] for trial in tried(searched)] == [20, 20, 10]
    assert searched.summary.params_sha256 == trained.summary.params_sha256
    assert searched.summary.test_accuracy == trained.summary.test_accuracy


@pytest.mark.parametrize(("lr", "spread", "diverged"), [(1e30, 1, True), (1e15, 1e15, False)], ids=["all", "some"])
def test_a_search_diverges_if_its_best_trial_does(lr: float, spread: float, diverged: bool, tmp_path: Path) -> None:
    run = launch("search", 2, trials=8, steps=8, hidden=8, lr=lr, spread=spread, out=tmp_path / "run")
    assert any(trial["loss"] is None for trial in tried(run))
    assert (run.summary.diverged is not None) == (run.summary.final_loss is None) == diverged
