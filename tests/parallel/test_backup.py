"""Backup recovery with real kills: a spare continues bitwise as the dead rank would have, from its buddy or from disk.

That no process is left is asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import LaunchError, Run, launch
from farandole.model_parallel.zero import ShardedOptimizer
from farandole.models.optimizers import Adam
from farandole.recovery.event_log import EventLog
from farandole.runtime.command_line import to_arguments
from farandole.runtime.launcher import run_ranks
from tests.parallel.conftest import assert_same_training

PROGRAM = str(Path(__file__).parent / "programs" / "training_with_deaths.py")
STEPS = 60
EVERY = 5  # steps between two backups, unless a test says otherwise
WORKERS = 3
RECIPE: dict[str, Any] = {"steps": STEPS, "backup_every": EVERY}
SHARDED: dict[str, Any] = {**RECIPE, "shard_optimizer": True}
# Without dropout the assignment of work to ranks only changes the order of sums.
STEADY: dict[str, Any] = {**SHARDED, "optimizer": "adam", "lr": 0.002, "dropout": 0.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train without a failure, with the whole optimizer on every worker; dividing it changes no bit."""
    return launch("backup", WORKERS, **RECIPE, out=tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole_sharded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train without a failure, with a part of the optimizer on every worker."""
    return launch("backup", WORKERS, **STEADY, out=tmp_path_factory.mktemp("sharded") / "run")


def assert_each_step_once(run: Run, members: list[int], whole: Run) -> None:
    assert run.summary.members == members
    assert len(run.summary.params_sha256 or []) == len(members)
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["samples"] for line in run.metrics] == [line["samples"] for line in whole.metrics]
    for fault in run.summary.faults:
        assert fault["kind"] == "kill"
        assert 0 <= fault["detected_s"] < fault["resumed_s"]


def assert_bitwise(run: Run, whole: Run) -> None:
    assert set(run.summary.params_sha256 or []) == set(whole.summary.params_sha256 or [])
    assert run.summary.final_loss == whole.summary.final_loss
    assert run.summary.test_accuracy == whole.summary.test_accuracy


def test_two_deaths_in_turn_leave_the_parameters_unchanged(whole: Run, tmp_path: Path) -> None:
    """The second death is the coordinator's, when a backup has just been made, or nearly."""
    fails = ["rank=1,step=33", "rank=0,step=45"]
    run = launch("backup", WORKERS + 2, spares=2, fail=fails, **RECIPE, out=tmp_path / "run")
    assert_each_step_once(run, [2, 3, 4], whole)
    assert_bitwise(run, whole)
    [first, second] = run.summary.faults
    assert (first["rank"], first["step"], first["steps_lost"]) == (1, 33, 33 % EVERY)
    assert (second["rank"], second["step"]) == (0, 45)
    assert second["steps_lost"] in (0, EVERY)


def undone(run: Run) -> set[int]:
    """Return after which steps the bold driver went back to its last accepted state."""
    return {line.step for line in EventLog(run.folder / "logbook.jsonl").lines() if line.what == "undone"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("by", ["loss", "gradients"])
def test_the_learning_rate_follows_losses_that_a_dead_rank_computed_part_of(by: str, tmp_path: Path) -> None:
    """Deaths within a window, twice in the next one, and back over the end of one; windows are undone, too."""
    recipe: dict[str, Any] = {**RECIPE, "adapt_lr": True, "adapt_lr_by": by, "lr": 1.0, "backup_every": 4}
    undisturbed = launch("backup", WORKERS, **recipe, out=tmp_path / "undisturbed")
    fails = ["rank=1,step=15", "rank=0,step=23", "rank=3,step=27", "rank=2,step=51"]
    run = launch("backup", WORKERS + 4, spares=4, fail=fails, **recipe, out=tmp_path / "run")
    assert_each_step_once(run, [4, 5, 6], undisturbed)
    assert_bitwise(run, undisturbed)
    assert [line["loss"] for line in run.metrics] == [line["loss"] for line in undisturbed.metrics]
    assert undone(run) == undone(undisturbed)
    assert bool(undone(run)) == (by == "loss")
    fixed = launch("backup", WORKERS, **RECIPE | {"lr": 1.0, "backup_every": 4}, out=tmp_path / "fixed")
    assert fixed.summary.params_sha256 != undisturbed.summary.params_sha256


def test_the_loss_scale_is_restored_in_16_bits(tmp_path: Path) -> None:
    """Steps as large as these make float16 overflow at once, several times; a new scale would do so once more."""
    recipe = {"steps": 12, "lr": 0.1, "batch": 16, "optimizer": "adam", "precision": "float16", "backup_every": 1}
    whole = launch("backup", 2, **recipe, out=tmp_path / "whole")
    run = launch("backup", 3, spares=1, fail="rank=1,step=3", **recipe, out=tmp_path / "run")
    assert run.summary.members == [0, 2]
    assert_bitwise(run, whole)


def test_a_dead_ranks_part_of_a_divided_optimizer_is_restored(whole_sharded: Run, tmp_path: Path) -> None:
    run = launch("backup", WORKERS + 1, spares=1, fail="rank=2,step=38", **STEADY, out=tmp_path / "run")
    assert_each_step_once(run, [0, 1, 3], whole_sharded)
    assert_bitwise(run, whole_sharded)
    assert [(fault["rank"], fault["steps_lost"]) for fault in run.summary.faults] == [(2, 38 % EVERY)]
    # A checkpoint of an earlier step may be incomplete: rank 2 may have died before it had written its file.
    assert "back to the checkpoint" not in run.output, "it was in memory"


def test_a_worker_and_its_buddy_are_restored_from_the_disk(whole: Run, tmp_path: Path) -> None:
    fails = ["rank=1,step=33", "rank=2,step=33"]
    run = launch(
        "backup", WORKERS + 2, spares=2, fail=fails, checkpoint_every=20, **SHARDED, out=tmp_path / "run"
    )  # fmt: skip
    assert_each_step_once(run, [0, 3, 4], whole)
    assert_bitwise(run, whole)
    assert sorted(fault["rank"] for fault in run.summary.faults) == [1, 2]
    [lost] = {fault["steps_lost"] for fault in run.summary.faults}
    assert lost in (13, 33), "the checkpoint of step 20 may not have been on the disk yet"
    assert f"a worker and its buddy have died: back to the checkpoint of step {33 - lost}" in run.output


@pytest.mark.parametrize("others", [[], ["rank=2,step=3"]], ids=["alone", "and its buddy before the second backup"])
def test_a_death_before_the_first_backup_restores_the_initial_state(
    whole: Run, others: list[str], tmp_path: Path
) -> None:
    fails = [word for fail in others for word in ("--fail", fail)]
    options = to_arguments({"spares": 1 + len(others), "checkpoint_every": 0, **SHARDED, "out": tmp_path / "run"})
    said = run_ranks([PROGRAM, "backup", "1@first-backup", *fails, *options], WORKERS + 1 + len(others), timeout_s=60)
    assert "a worker has died before there was a second backup: all begin anew" in str(said)
    run = Run(tmp_path / "run")
    assert_bitwise(run, whole)
    assert [fault["rank"] for fault in run.summary.faults] == [1, 2][: 1 + len(others)]


def test_without_a_complete_checkpoint_the_loss_of_both_is_reported(tmp_path: Path) -> None:
    fails = ["rank=1,step=13", "rank=2,step=13"]
    options = to_arguments({"fail": fails, "checkpoint_every": 0, **RECIPE, "out": tmp_path / "run"})
    with pytest.raises(LaunchError) as failed:
        run_ranks([PROGRAM, "backup", "0@torn", *options], 4, timeout_s=60)
    assert failed.value.returncode == 1
    place = tmp_path / "run" / "checkpoints" / "slot-0"
    assert f"the checkpoint in {place} is damaged and passed over: rank-0.json is torn" in failed.value.output
    [line] = failed.value.message.splitlines()
    assert line.endswith(
        "no copy is left of what some worker knew alone, which its buddy would have had, and no whole checkpoint is on "
        "disk: give --checkpoint-every, or a smaller one"
    )
    written = {file.name for file in (tmp_path / "run").glob("checkpoints/*/*")}
    assert written == {"rank-0.json", "rank-0.safetensors"}, "the torn one, and no other"


def test_spares_do_not_restart_when_all_workers_have_died(tmp_path: Path) -> None:
    fails = ["rank=0,step=3", "rank=1,step=3"]
    with pytest.raises(LaunchError, match="no copy is left of what some worker knew alone"):
        launch("backup", 4, spares=2, fail=fails, checkpoint_every=0, **RECIPE, out=tmp_path / "run", timeout_s=60)


def test_losses_survive_the_death_of_all_ranks_that_computed_them(tmp_path: Path) -> None:
    """One worker dies, a spare replaces it, and the other worker dies before the next exchange."""
    out = tmp_path / "run"
    words = ["--steps", "40", "--spares", "1", "--backup-every", "24", "--out", str(out)]
    run_ranks([PROGRAM, "backup", "1@again", "--fail", "rank=0,step=26", *words], ranks=3, timeout_s=60)
    run = Run.open(out)
    assert run.summary.members == [2]
    assert [fault["rank"] for fault in run.summary.faults] == [0, 1]
    assert [line["step"] for line in run.metrics] == list(range(40))


def test_without_spares_left_the_survivors_divide_work_and_optimizer(whole_sharded: Run, tmp_path: Path) -> None:
    fails = ["rank=1,step=23", "rank=0,step=48"]
    run = launch("backup", WORKERS + 1, spares=1, fail=fails, **STEADY, out=tmp_path / "run")
    assert_each_step_once(run, [2, 3], whole_sharded)
    assert [(fault["rank"], fault["steps_lost"]) for fault in run.summary.faults] == [(1, 3), (0, 3)]
    # With three workers, one of them new, it is the same training to the bit; then sums are formed in another order.
    assert [line["loss"] for line in run.metrics[:40]] == [line["loss"] for line in whole_sharded.metrics[:40]]
    assert_same_training(run, whole_sharded)


def test_a_backup_sends_only_a_workers_state_with_one_message_per_tensor(whole_sharded: Run, tmp_path: Path) -> None:
    """A backup sends only a worker's own state, a message for each tensor; the training does not depend on it."""
    once = launch("backup", WORKERS, **{**STEADY, "backup_every": 10**6}, out=tmp_path / "run")
    assert once.summary.params_sha256 == whole_sharded.summary.params_sha256
    sent, least = whole_sharded.summary, once.summary
    assert sent.messages_sent is not None
    assert least.messages_sent is not None
    assert sent.bytes_sent is not None
    assert least.bytes_sent is not None
    backups = STEPS // EVERY - 1  # more than the one at the start
    tensors = 5  # where the random numbers are, the last losses, and three that Adam remembers
    more = [each - few for each, few in zip(sent.messages_sent, least.messages_sent, strict=True)]
    assert more == [backups * tensors] * WORKERS
    for worker in range(WORKERS):
        assert sent.bytes_sent[worker] - least.bytes_sent[worker] == backups * own_bytes(worker)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_recovery_restores_the_saved_state_after_an_interrupted_exchange(
    under_mpirun: Callable[..., Any], ranks: int
) -> None:
    assert under_mpirun("buddies_copies.py", ranks)["right"] == ranks


def own_bytes(worker: int) -> int:
    """A worker's own state: its random state, its losses, and its part of Adam's state."""
    count = 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10  # parameters of the default perceptron for digits
    part = ShardedOptimizer.part_of(count, worker, WORKERS)
    vector = torch.zeros(part.stop - part.start)
    optimizer = Adam(vector, torch.zeros_like(vector), lr=1.0)
    losses = 20 * 4 * 8  # of two windows: its part, its share, when, and how many samples
    return torch.get_rng_state().nbytes + losses + sum(tensor.nbytes for tensor in optimizer.state.values())
