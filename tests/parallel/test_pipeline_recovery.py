"""A pipeline whose stages are killed: a spare is restored from the buddy's memory, and the result does not change.

That no process is left is asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from farandole import LaunchError, Run, launch
from farandole.errors import UsageError
from farandole.model_parallel.layer_split import Plan
from farandole.models import choices
from farandole.models.options import TrainingOptions
from farandole.recovery.event_log import EventLog
from farandole.report.pipeline_picture import measured
from farandole.runtime.chaos import Chaos
from farandole.runtime.command_line import to_arguments
from farandole.runtime.launcher import run_ranks

PROGRAM = str(Path(__file__).parent / "programs" / "training_with_deaths.py")
STEPS = 40
EVERY = 5  # steps between two backups
FIRST_BACKUP_S = 0.1  # until it is made, no stage has a copy of another
AT_LEAST_S = 0.1  # no machine needs less for 300 steps: a death that is due earlier must occur
# Measured times would cut the model differently each time, and each stage has a digest.
RECIPE: dict[str, Any] = {
    "steps": STEPS,
    "hidden": 32,
    "depth": 3,
    "micro_batches": 4,
    "balance": "layers",
    "optimizer": "adam",
    "lr": 0.002,
}
INTERLEAVED: dict[str, Any] = {
    **RECIPE, "depth": 2, "schedule": "interleaved", "chunks": 2, "micro_batches": 6, "optimizer": "momentum"
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train four unprotected stages without a failure."""
    return launch("pipeline", 4, **RECIPE, out=tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole_interleaved(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train three stages without a failure, each with two pieces of the model."""
    return launch("pipeline", 3, **INTERLEAVED, out=tmp_path_factory.mktemp("interleaved") / "run")


def by_stage(run: Run) -> dict[str, str]:
    """Return each stage's final digest, whichever rank has it."""
    stages = [name.split(", ")[1] for name in run.rank_names]
    return dict(zip(stages, run.summary.params_sha256 or [], strict=True))


def assert_nothing_shows(run: Run, whole: Run) -> None:
    """Check that parameters, losses and accuracy equal those of the undisturbed run, to the bit."""
    assert by_stage(run) == by_stage(whole)
    assert run.summary.final_loss == whole.summary.final_loss
    assert run.summary.test_accuracy == whole.summary.test_accuracy
    lines = [[(line["step"], line["loss"], line["samples"]) for line in each.metrics] for each in (run, whole)]
    assert lines[0] == lines[1]
    assert [step for step, _, _ in lines[0]] == list(range(STEPS))
    walls = [line["wall_s"] for line in run.metrics]
    assert walls == sorted(walls)
    assert (run.folder / "plan.json").exists()


def struck(run: Run) -> list[tuple[int, int, int]]:
    """Return the record's faults without their times: rank, step, steps lost."""
    for fault in run.summary.faults:
        assert 0 <= (fault["detected_s"] or 0) < fault["resumed_s"]
    return [(fault["rank"], fault["step"], fault["steps_lost"]) for fault in run.summary.faults]


def train_with_deaths(deaths: str, ranks: int, out: Path, **options: Any) -> Run:
    """A run whose ranks die where no --fail reaches them."""
    output = run_ranks([PROGRAM, "pipeline", deaths, *to_arguments(options | {"out": out})], ranks, timeout_s=120)
    return Run(out, str(output))


def test_a_stage_in_the_middle_is_restored_by_a_spare(whole: Run, tmp_path: Path) -> None:
    fail = "rank=2,step=23"
    run = launch("pipeline", 5, spares=1, backup_every=EVERY, fail=fail, **RECIPE, out=tmp_path / "run")
    assert_nothing_shows(run, whole)
    assert run.summary.members == [0, 1, 3, 4]
    assert run.rank_names == ["rank 0, stage 0", "rank 1, stage 1", "rank 3, stage 3", "rank 4, stage 2"]
    assert struck(run) == [(2, 23, 23 % EVERY)]
    picture = measured(run, step=0)
    assert picture.rows == run.rank_names
    assert {own.stage for own in picture.intervals} == {0, 1, 2, 3}
    assert f"step 0 of {STEPS - 20}" in picture.title, "from where it went on"


def test_the_first_and_then_the_last_stage_are_restored(whole_interleaved: Run, tmp_path: Path) -> None:
    fails = ["rank=0,step=13", "rank=2,step=31"]
    run = launch("pipeline", 5, spares=2, fail=fails, **INTERLEAVED, out=tmp_path / "run")
    assert_nothing_shows(run, whole_interleaved)
    assert run.summary.members == [1, 3, 4]
    assert run.rank_names == ["rank 1, stage 1", "rank 3, stage 0", "rank 4, stage 2"]
    assert struck(run) == [(0, 13, 3), (2, 31, 1)], "5 is the default"


def test_stages_that_hold_the_same_pieces_of_two_models_are_restored(tmp_path: Path) -> None:
    """DualPipe: one of two stages dies; afterwards the two add up their gradients as before."""
    options: dict[str, Any] = RECIPE | {"schedule": "dualpipe", "micro_batches": 4}
    undisturbed = launch("pipeline", 2, **options, out=tmp_path / "whole")
    run = launch("pipeline", 3, spares=1, backup_every=EVERY, fail="rank=1,step=23", **options, out=tmp_path / "run")
    assert_nothing_shows(run, undisturbed)
    assert run.summary.members == [0, 2]
    assert len(set(by_stage(run).values())) == 1, "both have all pieces"


def test_deaths_during_a_backup_and_during_the_rollback(whole_interleaved: Run, tmp_path: Path) -> None:
    """A stage dies during the exchange of the fourth backup, and later the spare that replaced it."""
    run = train_with_deaths("1@backup,3@go-back", 5, tmp_path / "run", spares=2, **INTERLEAVED)
    assert_nothing_shows(run, whole_interleaved)
    assert run.summary.members == [0, 2, 4]
    [(first, at, lost), (second, step, again)] = struck(run)
    assert (first, at) == (1, 15)
    assert lost in (0, EVERY), "whoever had it already may have had all of it"
    assert (second, step, again) == (3, at - lost, 0)


def test_deaths_in_the_middle_of_a_step_and_after_the_last(whole_interleaved: Run, tmp_path: Path) -> None:
    """The first stage dies between two micro-batches, and the last one while its losses are added up."""
    run = train_with_deaths("0@pass,2@record", 5, tmp_path / "run", spares=2, **INTERLEAVED)
    assert_nothing_shows(run, whole_interleaved)
    assert run.summary.members == [1, 3, 4]
    passes = 2 * 2 * 6  # of a step: there and back, two pieces, six micro-batches
    step = 99 // passes
    assert struck(run) == [(0, step, step), (2, STEPS, EVERY)]


def test_without_a_spare_the_missing_stage_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as failed:
        launch("pipeline", 3, backup_every=EVERY, fail="rank=1,step=7", **RECIPE, out=tmp_path / "run", timeout_s=60)
    assert failed.value.returncode == 1
    [line] = failed.value.message.splitlines()
    assert line.endswith(
        "no spare is left for stage 1 (rank 1), and a pipeline cannot do without: give --spares 1 or more"
    )
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_stage_and_its_buddy_are_restored_from_the_disk(whole: Run, tmp_path: Path) -> None:
    fails = ["rank=1,step=27", "rank=2,step=27"]
    out = tmp_path / "run"
    run = launch("pipeline", 6, spares=2, checkpoint_every=10, fail=fails, **RECIPE, out=out)
    assert_nothing_shows(run, whole)
    assert run.summary.members == [0, 3, 4, 5]
    [(first, at, lost), (second, step, again)] = sorted(struck(run))
    assert (first, at, second, step) == (1, 27, 2, 27)
    assert lost == again
    assert lost in (7, 17), "that of step 20 may not have been on the disk yet"
    gone = "no copy is left of stage 1, which its buddy, stage 2, would have had"
    assert re.search(rf"{gone}: .*step {27 - lost}$", run.output, re.M)


def test_without_a_checkpoint_the_loss_of_a_stage_and_its_buddy_is_reported(tmp_path: Path) -> None:
    options = {**RECIPE, "spares": 2, "checkpoint_every": 0, "fail": ["rank=1,step=7", "rank=2,step=7"]}
    with pytest.raises(LaunchError) as failed:
        launch("pipeline", 5, **options, out=tmp_path / "run", timeout_s=60)
    assert failed.value.returncode == 1
    [line] = failed.value.message.splitlines()
    assert line.endswith(
        "no copy is left of stage 1, which its buddy, stage 2, would have had, and no whole checkpoint is on disk: "
        "start again"
    )


def test_a_schedule_that_never_flushes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        launch("pipeline", 2, schedule="pipedream", backup_every=EVERY, out=tmp_path / "run")
    [line] = str(refused.value).splitlines()
    assert line.startswith("--schedule pipedream: batches are always under way")
    assert line.endswith("without --spares, --backup-every and --checkpoint-every, or a schedule that flushes, as 1f1b")
    assert not (tmp_path / "run").exists()


def test_checkpoints_take_two_spares(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--spares 1 has no places for them: give 2 or more"):
        launch("pipeline", 3, spares=1, checkpoint_every=10, **RECIPE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_protection_sends_only_a_stages_state_with_one_message_per_tensor(whole: Run, tmp_path: Path) -> None:
    """A backup sends a stage's state and nothing else, a message for each tensor; training does not depend on it."""
    run = launch("pipeline", 4, backup_every=EVERY, **RECIPE, out=tmp_path / "run")
    assert_nothing_shows(run, whole)
    assert run.summary.memory == whole.summary.memory
    backups = STEPS // EVERY
    plan = Plan.from_json((run.folder / "plan.json").read_text())
    layers = choices.build(TrainingOptions(hidden=RECIPE["hidden"], depth=RECIPE["depth"]))
    for stage, part in enumerate(plan.parts):
        messages, sent = (
            protected[stage] - plain[stage]
            for protected, plain in (
                (run.summary.messages_sent or [], whole.summary.messages_sent or []),
                (run.summary.bytes_sent or [], whole.summary.bytes_sent or []),
            )
        )
        own = own_bytes(layers[part]) + (16 * STEPS if stage == 3 else 0)  # the last one knows the losses, and when
        assert own < sent - (backups - 1) * own < own + 1000, "the first time with names"
        tensors = 6 if stage == 3 else 4
        assert messages == (backups - 1) * tensors + 2


LONG: dict[str, Any] = {**RECIPE, "steps": 300}
STATED = re.compile(
    r"rank \d( at step \d+)? cannot go on: "
    r"(no spare is left for .*|(no copy is left of .*|no rank that is left has a copy of any stage), and no whole "
    r"checkpoint is on disk: start again"
    r"|every worker has died)"
    r"|all ranks have died.*"
)


@pytest.fixture(scope="module")
def whole_and_long(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("pipeline", 4, **LONG, out=tmp_path_factory.mktemp("long") / "run")


RANDOM = [(2 + seed % 2, Chaos((0.5, 1.0, 2.0)[seed % 3], seed)) for seed in range(15)]


@pytest.mark.soak
@pytest.mark.parametrize(("spares", "chaos"), RANDOM, ids=str)
def test_random_kills_leave_the_parameters_unchanged_or_end_with_the_reason(
    whole_and_long: Run, tmp_path: Path, spares: int, chaos: Chaos
) -> None:
    said, run = "", None
    try:
        run = launch("pipeline", 4 + spares, spares=spares, chaos=chaos, **LONG, out=tmp_path / "run", timeout_s=120)
    except LaunchError as failure:
        said = failure.message
    failures = [line for line in EventLog(tmp_path / "run" / "logbook.jsonl").lines() if line.what == "failure"]
    killed = {line.rank for line in failures if line.kind == "kill"}
    when, first = next(chaos.deaths(4 + spares))
    assert first in killed or when > AT_LEAST_S
    if run is None:
        assert STATED.fullmatch(said), said
        assert len(killed) >= 2 or when < FIRST_BACKUP_S, "of one death no pipeline with a spare has died"
        return
    assert {line.rank for line in failures} == killed, "nobody has died of anything else"
    assert by_stage(run) == by_stage(whole_and_long)
    lines = [[(line["step"], line["loss"]) for line in each.metrics] for each in (run, whole_and_long)]
    assert lines[0] == lines[1]
    assert not killed & set(run.summary.members)


def own_bytes(piece: nn.Sequential) -> int:
    """Parameters and Adam's state: two numbers for each, and the number of steps."""
    return 3 * sum(parameter.nbytes for parameter in piece.parameters()) + torch.zeros((), dtype=torch.int64).nbytes
