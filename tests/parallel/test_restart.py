"""Restart recovery with real kills: the result is that of a run without them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from farandole import LaunchError, Run, UsageError, launch
from farandole.data_parallel.loss_scale import FIRST
from farandole.launching import supervised_launch
from farandole.recovery.event_log import EventLog
from farandole.runtime.failure import CAN_GO_ON
from tests.parallel.conftest import is_rank

STEPS = 40
EVERY = 7
RECIPE: dict[str, Any] = {"optimizer": "adam", "lr": 0.002, "steps": STEPS, "checkpoint_every": EVERY}
SOAK = os.environ.get("FARANDOLE_SOAK") == "1"  # make soak


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("restart", ranks=4, out=tmp_path_factory.mktemp("whole") / "run", **RECIPE)


def killed(out: Path, step: int, rank: int = 1, ranks: int = 4, **options: Any) -> str:
    """Start a run that loses a rank; return the launcher's message."""
    fail = f"rank={rank},step={step},how={options.pop('how', 'kill')}"
    with pytest.raises(LaunchError) as caught:
        launch("restart", ranks=ranks, out=out, fail=fail, **RECIPE | options)
    return caught.value.message


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_without_dropout_restart_equals_synchronous_sgd(precision: str, tmp_path: Path) -> None:
    same = {"steps": 12, "lr": 0.1, "precision": precision}
    restartable = launch("restart", ranks=3, out=tmp_path / "a", optimizer="sgd", dropout=0.0, **same)
    plain = launch("sync_sgd", ranks=3, out=tmp_path / "b", **same)
    assert restartable.summary.params_sha256 == plain.summary.params_sha256
    assert [line["samples"] for line in restartable.metrics] == [line["samples"] for line in plain.metrics]


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_a_run_killed_at_random_steps_ends_with_the_same_parameters(
    seed: int, uninterrupted: Run, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    steps = sorted(rng.sample(range(STEPS), 1 if SOAK else 3))
    fails = [f"rank={rng.randrange(4)},step={step}" for step in steps]
    said: list[str] = []
    run = supervised_launch(
        "restart", 4, restarts=3, backoff_s=0.1, announce=said.append, out=tmp_path / "run", fail=fails, **RECIPE
    )
    assert run.summary.params_sha256 == uninterrupted.summary.params_sha256
    assert run.summary.final_loss == uninterrupted.summary.final_loss
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["loss"] for line in run.metrics] == [line["loss"] for line in uninterrupted.metrics]
    walls = [line["wall_s"] for line in run.metrics]
    assert walls == sorted(walls), "the wall clock goes on over all starts"
    assert len(said) == len(steps)
    for fault, fail, step in zip(run.summary.faults, fails, steps, strict=True):
        assert f"rank={fault['rank']},step={fault['step']}" == fail
        assert fault["kind"] == "kill"
        # The checkpoint that was written when the rank died may be lost with it.
        assert step % EVERY <= fault["steps_lost"] < 2 * EVERY
        assert (step - fault["steps_lost"]) % EVERY == 0
        assert fault["resumed_s"] > 0
        assert fault["detected_s"] is None or 0 <= fault["detected_s"] < fault["resumed_s"]


def newest_scale(out: Path) -> dict[str, float]:
    """The loss scale in the newest checkpoint."""
    written = [json.loads(file.read_text()) for file in out.glob("checkpoints/*/rank-0.json")]
    scale: dict[str, float] = max(written, key=lambda each: each["step"])["values"]["loss scale"]
    return scale


def test_a_run_killed_between_two_overflows_skips_the_same_steps(tmp_path: Path) -> None:
    """Steps as large as these make float16 overflow at once, several times; a new scale would do so once more."""
    recipe = RECIPE | {"lr": 0.1, "batch": 16, "precision": "float16", "steps": 12}
    recipe |= {"checkpoint_every": 1, "checkpoint_async": False}
    whole = launch("restart", ranks=2, out=tmp_path / "whole", **recipe)
    killed(tmp_path / "run", ranks=2, **recipe, step=3)
    at_death = newest_scale(tmp_path / "run")
    run = launch("restart", ranks=2, out=tmp_path / "run", **recipe)
    in_the_end = newest_scale(tmp_path / "whole")
    assert 0 < at_death["skipped"] < in_the_end["skipped"] < 11, "some before the death, some after it, not all"
    assert at_death["value"] == FIRST / 2 ** at_death["skipped"]
    assert newest_scale(tmp_path / "run") == in_the_end
    assert run.summary.params_sha256 == whole.summary.params_sha256


def test_each_start_may_have_a_different_number_of_ranks(uninterrupted: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for number, ranks in enumerate([4, 7, 1]):
        by = "rank-0" if number % 2 else "ranks"
        killed(out, step=10 * (number + 1), rank=0, ranks=ranks, checkpoint_by=by, checkpoint_async=number != 1)
    run = launch("restart", ranks=3, out=out, **RECIPE)
    assert [fault["step"] for fault in run.summary.faults] == [10, 20, 30]
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert len(run.summary.params_sha256 or []) == run.summary.ranks == 3
    samples = [line["samples"] for line in run.metrics]
    assert samples == [line["samples"] for line in uninterrupted.metrics], "the batches are cut otherwise, but the same"
    assert run.summary.test_accuracy == pytest.approx(uninterrupted.summary.test_accuracy, abs=0.05)


def test_metrics_that_cannot_be_written_are_named_in_one_line(tmp_path: Path) -> None:
    again = {"ranks": 1, "steps": 8, "out": tmp_path / "run"}
    with pytest.raises(LaunchError):
        launch("restart", fail="rank=0,step=4", **again)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    with pytest.raises(
        UsageError, match=r"metrics\.jsonl cannot be written \(Is a directory\): remove it, or give another"
    ):
        launch("restart", **again)


def test_a_damaged_checkpoint_is_skipped(uninterrupted: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, step=2 * EVERY + 3, checkpoint_async=False)
    newest = max(out.glob("checkpoints/*/rank-2.json"), key=lambda file: json.loads(file.read_text())["step"])
    tensors = newest.with_suffix(".safetensors")
    whole = bytearray(tensors.read_bytes())
    whole[len(whole) // 2] ^= 1
    tensors.write_bytes(whole)
    run = launch("restart", ranks=4, out=out, **RECIPE)
    assert f"the checkpoint in {newest.parent} is damaged and passed over: rank-2.safetensors" in run.output
    assert f"goes on from step {EVERY}" in run.output
    assert run.summary.faults[0]["steps_lost"] == EVERY + 3
    assert run.summary.params_sha256 == uninterrupted.summary.params_sha256


def test_a_hung_rank_is_killed_and_the_hang_does_not_recur(uninterrupted: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    message = killed(out, step=10, rank=3, how="hang", wait_timeout=5.0)
    assert "rank 3 at step 10 has not answered" in message
    run = launch("restart", ranks=4, out=out, fail="rank=3,step=10,how=hang", **RECIPE)
    assert [(fault["rank"], fault["kind"]) for fault in run.summary.faults] == [(3, "hang")]
    assert 4.5 < run.summary.faults[0]["detected_s"] < 60
    assert run.summary.params_sha256 == uninterrupted.summary.params_sha256


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_stop_signal_saves_a_checkpoint_from_which_the_run_continues(
    number: signal.Signals, uninterrupted: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["--optimizer", "adam", "--lr", "0.002", "--steps", str(STEPS), "--slow", "rank=1,factor=120"]
    words += ["--out", str(out), "--checkpoint-every", "0"]
    command = [sys.executable, "-m", "farandole", "run", "restart", "-n", "4", *words]
    environment = os.environ | ({"FARANDOLE_STOP_ON_TERM": "1"} if number == signal.SIGTERM else {})
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    event_log = EventLog(out / "logbook.jsonl")
    deadline = time.monotonic() + 180
    while not any(line.what == "first step" for line in event_log.lines()):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranks = [each for each in psutil.Process(process.pid).children(recursive=True) if is_rank(each)]
    assert len(ranks) == 4
    ranks[2].send_signal(number)
    _, said = process.communicate(timeout=180)
    assert process.returncode == CAN_GO_ON, said
    [saved] = [line.step for line in event_log.lines() if line.what == "checkpoint"]
    assert 0 < saved < STEPS
    assert said.splitlines()[-1] == (
        f"farandole: stopped as asked, saved before step {saved}: the same command goes on from there"
    )
    run = launch("restart", ranks=4, out=out, **RECIPE)
    assert f"goes on from step {saved}" in run.output
    assert run.summary.faults == [], "a stop that was asked for is no fault"
    assert run.summary.params_sha256 == uninterrupted.summary.params_sha256


def test_a_restart_with_other_options_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, step=10, ranks=2)
    kept = sorted(out.rglob("*"))
    with pytest.raises(UsageError, match=r"was started with --lr 0\.002, not 0\.5: give what it was started with"):
        launch("restart", ranks=2, out=out, **RECIPE | {"lr": 0.5})
    with pytest.raises(UsageError, match=r"is not empty: give a new folder"):
        launch("sync_sgd", ranks=2, out=out)
    assert sorted(out.rglob("*")) == kept
    launch("restart", ranks=2, out=out, **RECIPE)
    with pytest.raises(UsageError, match=r"has finished: give a new folder"):
        launch("restart", ranks=2, out=out, **RECIPE)


def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_a_message(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed(out, step=1, ranks=2)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / "checkpoints").write_text("in the way")
    with pytest.raises(LaunchError, match=r"cannot go on: .*checkpoint.* written"):
        launch("restart", ranks=2, out=out, **RECIPE)
