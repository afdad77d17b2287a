"""Membership update with real kills: the survivors continue, each step is done once, and a spare changes nothing.

That no process is left is asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, launch
from farandole.data.sampler import batch_size, steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.runtime.launcher import run_ranks
from tests.parallel.conftest import assert_same_training

PROGRAM = str(Path(__file__).parent / "programs" / "training_with_deaths.py")
STEPS = 60
BATCH = 64  # the default
TRAINING_SET = 1437  # of the digits
# Without dropout the assignment of work to ranks only changes the order of sums.
RECIPE: dict[str, Any] = {"steps": STEPS, "dropout": 0.0}
WORDS = ["--steps", str(STEPS), "--dropout", "0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run of four workers without a failure."""
    return launch("membership", 4, **RECIPE, out=tmp_path_factory.mktemp("whole") / "run")


def struck(run: Run) -> list[tuple[int, int, str, int]]:
    """Return the record's faults without their times: rank, step, kind, steps lost."""
    return [(fault["rank"], fault["step"], fault["kind"], fault["steps_lost"]) for fault in run.summary.faults]


def samples(workers: int) -> list[int]:
    """Return each step's number of samples, if `workers` begin; the batches do not change when some have died."""
    shares = equal_shares(TRAINING_SET, workers)
    epoch = steps_per_epoch(TRAINING_SET, BATCH)
    return [sum(batch_size(share, epoch, step) for share in shares) for step in range(STEPS)]


def assert_complete(run: Run, members: list[int], at_first: int = 4) -> None:
    """Check the members at the end, their equal parameters, and that each step was done once, with its whole batch.

    Args:
        at_first: how many have worked.
    """
    summary = run.summary
    assert (summary.ranks, summary.members) == (len(members), members)
    assert len(set(summary.params_sha256 or [])) == 1
    for figures in (summary.params_sha256, summary.bytes_sent, summary.messages_sent,
                    summary.compute_s, summary.comm_s, summary.wait_s):  # fmt: skip
        assert figures is not None
        assert len(figures) == len(members)
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["samples"] for line in run.metrics] == samples(at_first)
    assert all(0 <= fault["detected_s"] < fault["resumed_s"] for fault in summary.faults)


def test_without_a_spare_the_survivors_divide_the_work(whole: Run, tmp_path: Path) -> None:
    run = launch("membership", 4, fail="rank=2,step=33", **RECIPE, out=tmp_path / "run")
    assert_complete(run, [0, 1, 3])
    assert_same_training(run, whole, but_for=range(30, 33))
    assert struck(run) == [(2, 33, "kill", 0)]
    walls = [line["wall_s"] for line in run.metrics]
    assert walls == sorted(walls)


def test_with_a_spare_the_parameters_equal_the_undisturbed_run_bitwise(whole: Run, tmp_path: Path) -> None:
    run = launch("membership", 5, spares=1, fail="rank=2,step=33", **RECIPE, out=tmp_path / "run")
    assert_complete(run, [0, 1, 3, 4])
    assert set(run.summary.params_sha256 or []) == set(whole.summary.params_sha256 or [])
    assert run.summary.final_loss == whole.summary.final_loss
    losses = [(line["loss"], expected["loss"]) for line, expected in zip(run.metrics, whole.metrics, strict=True)]
    assert all(loss == expected for step, (loss, expected) in enumerate(losses) if step not in range(30, 33))
    assert struck(run) == [(2, 33, "kill", 0)]


def test_a_spare_that_becomes_coordinator_continues_the_record(whole: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", "membership", "-n", "5", "--spares", "1", "--fail", "rank=0,step=36", *WORDS, "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "farandole", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = Run.open(out)
    assert_complete(run, [1, 2, 3, 4])
    assert set(run.summary.params_sha256 or []) == set(whole.summary.params_sha256 or [])
    assert run.summary.test_accuracy == whole.summary.test_accuracy, "another rank has evaluated"
    assert struck(run) == [(0, 36, "kill", 0)]
    assert "noticed after" in done.stdout, "its tables are shown, though rank 0 is gone"
    assert "rank 0" in done.stdout


def test_one_rank_survives_deaths_from_the_first_step_to_the_last(whole: Run, tmp_path: Path) -> None:
    fails = ["rank=1,step=0", "rank=0,step=25", f"rank=3,step={STEPS - 1}"]
    run = launch("membership", 4, fail=fails, **RECIPE, out=tmp_path / "run")
    assert_complete(run, [2])
    assert_same_training(run, whole, but_for=range(20, STEPS - 1))
    assert struck(run) == [(1, 0, "kill", 0), (0, 25, "kill", 0), (3, STEPS - 1, "kill", 0)]


def test_two_die_at_the_same_step_and_later_a_third(tmp_path: Path) -> None:
    """Two spares for three deaths: five workers while they last, then four."""
    fails = ["rank=1,step=23", "rank=3,step=23", "rank=0,step=45"]
    run = launch("membership", 7, spares=2, fail=fails, **RECIPE, out=tmp_path / "run")
    assert_complete(run, [2, 4, 5, 6], at_first=5)
    assert sorted(struck(run)) == [(0, 45, "kill", 0), (1, 23, "kill", 0), (3, 23, "kill", 0)]


def test_one_rank_alone_trains(tmp_path: Path) -> None:
    run = launch("membership", 1, **RECIPE, out=tmp_path / "run")
    assert_complete(run, [0], at_first=1)
    assert run.summary.faults == []
    assert run.summary.messages_sent == [0]


def test_deaths_during_the_recovery_and_after_the_last_step(whole: Run, tmp_path: Path) -> None:
    """The coordinator dies, and another one in the update that follows; and a third when all steps are done."""
    out = tmp_path / "run"
    options = [*WORDS, "--spares", "1", "--fail", "rank=0,step=33", "--out", str(out)]
    output = run_ranks([PROGRAM, "membership", "3@form,1@finish", *options], 5, timeout_s=120)
    run = Run(out, str(output))
    assert run.summary.members == [2, 4]
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["samples"] for line in run.metrics] == samples(4)
    assert_same_training(run, whole, but_for=range(30, 33))
    assert (0, 33, "kill", 0) in struck(run)
    # A member since the first step has sent at least what one of two workers sends: two messages a step.
    assert run.summary.messages_sent is not None
    assert run.summary.messages_sent[0] >= 2 * STEPS
    assert run.summary.messages_sent[1] >= 2 * (STEPS - 33)


def test_a_spare_that_becomes_coordinator_after_the_last_step_has_the_losses(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_ranks([PROGRAM, "membership", "0@finish", *WORDS, "--spares", "1", "--out", str(out)], 3, timeout_s=120)
    run = Run(out)
    assert run.summary.members == [1, 2]
    assert run.summary.final_loss == run.metrics[-1]["loss"]


def test_a_death_before_the_first_step(whole: Run, tmp_path: Path) -> None:
    """The coordinator hangs, for which the others wait."""
    out = tmp_path / "run"
    output = run_ranks([PROGRAM, "membership", "0@start", *WORDS, "--out", str(out)], 4, timeout_s=120)
    run = Run(out, str(output))
    assert run.summary.members == [1, 2, 3]
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["samples"] for line in run.metrics] == samples(4)
    assert_same_training(run, whole, but_for=range(0))
    assert [rank for rank, *_ in struck(run)] == [0]


def test_a_death_while_the_survivors_compare_their_steps(whole: Run, tmp_path: Path) -> None:
    """The spare hangs while it receives the state, and leads."""
    out = tmp_path / "run"
    options = [*WORDS, "--spares", "1", "--fail", "rank=0,step=33", "--out", str(out)]
    output = run_ranks([PROGRAM, "membership", "4@catch-up", *options], 5, timeout_s=120)
    run = Run(out, str(output))
    assert run.summary.members == [1, 2, 3]
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert [line["samples"] for line in run.metrics] == samples(4)
    assert_same_training(run, whole, but_for=range(30, 33))


@pytest.mark.parametrize("deaths", ["3@over", "0@over"], ids=["a spare", "the coordinator"])
def test_a_death_after_the_end_does_not_fail_the_run(deaths: str, tmp_path: Path) -> None:
    """Although no rank is left to detect it, and another death was detected before."""
    out = tmp_path / "run"
    options = [*WORDS, "--spares", "2", "--fail", "rank=1,step=13", "--out", str(out)]
    run_ranks([PROGRAM, "membership", deaths, *options], 4, timeout_s=120)
    run = Run(out)
    assert run.summary.members == [0, 2]
    assert [fault["rank"] for fault in run.summary.faults] == [1]


def test_a_spare_may_die_while_it_waits(tmp_path: Path) -> None:
    """No rank needs the spare, and the other one is still alive when a worker dies, after every time-out."""
    out, steps = tmp_path / "run", 300  # of 20 ms and more
    options = ["--steps", str(steps), "--spares", "2", "--out", str(out)]
    options += ["--fail", f"rank=1,step={steps - 5}", "--wait-timeout", "4", "--hang-after", "3"]
    run_ranks([PROGRAM, "membership", "3@wait,0@slow", *options], 4, timeout_s=300)
    run = Run(out)
    assert run.summary.members == [0, 2]
    assert [line["step"] for line in run.metrics] == list(range(steps))
    assert (1, steps - 5, "kill", 0) in struck(run)


@pytest.mark.parametrize("spares", [0, 1])
def test_the_death_of_all_workers_is_reported(spares: int, tmp_path: Path) -> None:
    """A waiting spare does not help: the parameters are lost with the workers."""
    fails = ["rank=0,step=5", "rank=1,step=5"]
    with pytest.raises(LaunchError) as failed:
        launch("membership", 2 + spares, spares=spares, fail=fails, **RECIPE, out=tmp_path / "run", timeout_s=60)
    assert failed.value.returncode == 1, failed.value.message
    assert "Traceback" not in failed.value.message
    assert "every worker has died" in failed.value.message or "at step 5" in failed.value.message
    assert not (tmp_path / "run" / "summary.json").exists()


def test_as_many_spares_as_ranks_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", "membership", "-n", "2", "--spares", "2", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "farandole", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert "--spares 2: of 2 rank(s) at least one has to work; give 1 or fewer" in line
    assert not out.exists()


def test_the_event_log_has_start_and_first_step(whole: Run) -> None:
    lines = [json.loads(line) for line in (whole.folder / "logbook.jsonl").read_text().split("\n") if line]
    assert [(line["what"], line["rank"], line["step"]) for line in lines] == [("start", 0, 0), ("first step", 0, 0)]
