"""Failures other than a clean death: a hung rank, a step that fails on one worker, several failures at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole import Run, UsageError, launch
from farandole.recovery.event_log import EventLog
from tests.tasks import frozen

STEPS = 60
SAME: dict[str, Any] = {"steps": STEPS, "dropout": 0.0}
HANG_AFTER = 4.0  # on a busy machine a rank is slow, not silent


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("membership", 3, **SAME, out=tmp_path_factory.mktemp("whole") / "run")


def trained_as(run: Run, whole: Run) -> bool:
    digests = {*(run.summary.params_sha256 or []), *(whole.summary.params_sha256 or [])}
    return len(digests) == 1 and [line["step"] for line in run.metrics] == list(range(STEPS))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("scenario", "how"),
    [("membership", "partition"), ("membership", "hang"), ("backup", "hang"), ("backup", "partition")],
)
def test_a_rank_that_hangs_or_is_cut_off_is_replaced(scenario: str, how: str, whole: Run, tmp_path: Path) -> None:
    fail = f"rank=1,step=23,how={how}"
    run = launch(scenario, 4, spares=1, fail=fail, hang_after=HANG_AFTER, **SAME, out=tmp_path / "run", timeout_s=90)
    assert run.summary.members == [0, 2, 3]
    assert trained_as(run, whole)
    (fault,) = run.summary.faults
    assert (fault["rank"], fault["step"], fault["kind"]) == (1, 23, how)
    assert fault["detected_s"] >= 0.9 * HANG_AFTER, "no rank is ended before its time"


def test_a_partition_that_heals_before_it_is_noticed_costs_only_time(whole: Run, tmp_path: Path) -> None:
    run = launch("membership", 3, fail="rank=1,step=23,how=partition,heals=0.5", **SAME, out=tmp_path / "run")
    assert run.summary.members == [0, 1, 2]
    assert trained_as(run, whole)
    (fault,) = run.summary.faults
    assert (fault["rank"], fault["step"], fault["kind"], fault["detected_s"]) == (1, 23, "partition", None)
    assert fault["resumed_s"] >= 0.5


def test_a_frozen_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP stops a rank's heartbeats, too: it is silent, and another rank of its host has to kill it."""
    same: dict[str, Any] = {"task": f"{frozen.__file__}:task", "steps": 12}
    whole = launch("membership", 3, **same, out=tmp_path / "whole")
    monkeypatch.setenv(frozen.RANK, "2")
    run = launch("membership", 4, spares=1, hang_after=HANG_AFTER, **same, out=tmp_path / "run", timeout_s=90)
    assert run.summary.members == [0, 1, 3]
    assert run.summary.params_sha256 == whole.summary.params_sha256
    (fault,) = run.summary.faults
    assert (fault["rank"], fault["step"], fault["kind"]) == (2, frozen.STEP, "silent")


def test_a_step_that_fails_on_one_worker_is_repeated(whole: Run, tmp_path: Path) -> None:
    run = launch("membership", 3, fail=["rank=1,step=23,how=raise"] * 2, **SAME, out=tmp_path / "run")
    assert run.summary.members == [0, 1, 2]
    assert trained_as(run, whole)
    (fault,) = run.summary.faults
    assert (fault["rank"], fault["step"], fault["kind"], fault["steps_lost"]) == (1, 23, "raise", 0)


def test_a_rank_that_fails_beyond_its_retry_time_leaves(whole: Run, tmp_path: Path) -> None:
    fail = ["rank=1,step=23,how=raise"] * 2
    run = launch("membership", 4, spares=1, fail=fail, retry_for=1e-6, **SAME, out=tmp_path / "run")
    assert run.summary.members == [0, 2, 3]
    assert trained_as(run, whole)
    assert "rank 1 at step 23 raised" in run.output


def test_a_spare_joins_after_repeated_failures(tmp_path: Path) -> None:
    fail = ["rank=0,step=11,how=raise", "rank=1,step=13,how=raise"]
    run = launch("membership", 3, spares=1, fail=fail, failures=2, **SAME, out=tmp_path / "run")
    assert run.summary.members == [0, 1, 2], "two at first"
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line.step for line in EventLog(run.folder / "logbook.jsonl").lines() if line.what == "start"] == [0, 20]
    assert [fault["kind"] for fault in run.summary.faults] == ["raise", "raise"], "that one joins is no fault"


def test_the_learning_rate_follows_the_loss_through_a_change(tmp_path: Path) -> None:
    """The same on all workers, including the joining one, or their parameters would diverge."""
    run = launch("membership", 4, spares=1, fail="rank=0,step=33", adapt_lr=True, lr=0.4, **SAME, out=tmp_path / "run")
    assert run.summary.members == [1, 2, 3]
    assert len(set(run.summary.params_sha256 or [])) == 1
    fixed = launch("membership", 3, lr=0.4, **SAME, out=tmp_path / "fixed")
    assert run.summary.params_sha256 != fixed.summary.params_sha256


def test_a_rate_at_which_it_would_diverge_is_found_and_costs_no_byte(tmp_path: Path) -> None:
    options = {**SAME, "steps": 200, "lr": 1.0}
    fixed = launch("membership", 2, **options, out=tmp_path / "fixed").summary
    for by in ("loss", "gradients"):
        adapted = launch("membership", 2, adapt_lr=True, adapt_lr_by=by, **options, out=tmp_path / by).summary
        assert adapted.final_loss < 1 < 2 < fixed.final_loss, by
        assert adapted.bytes_sent == fixed.bytes_sent, by


def test_adapt_lr_by_gradients_is_refused_where_it_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--adapt-lr-by gradients has an effect only with --adapt-lr: add it"):
        launch("membership", 2, adapt_lr_by="gradients", **SAME, out=tmp_path / "run")
    with pytest.raises(UsageError, match="goes without --shard-optimizer"):
        launch("backup", 2, adapt_lr=True, adapt_lr_by="gradients", shard_optimizer=True, out=tmp_path / "run")


def test_a_hang_time_out_beyond_the_wait_time_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--hang-after 60: a waiting rank gives up after --wait-timeout 60"):
        launch("membership", 2, hang_after=60, **SAME, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
