"""language_model.sbatch: signalled to end, all ranks stop after the same step, and leave a record."""

from __future__ import annotations

from pathlib import Path

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import PATIENCE, programs, run_it, wait_for, words_of

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "language_model.sbatch"


def test_told_to_end_it_is_recorded_as_far_as_it_came(cluster: Sandbox, checkout: Path) -> None:
    steps = 1_000_000
    number = cluster.submit(SCRIPT, arguments=["--hidden", "16", "--batch", "8", f"--steps={steps}"], cwd=checkout)
    folder = checkout / "runs" / f"language_model-{number}"
    metrics = folder / "metrics.jsonl"
    try:
        wait_for(lambda: metrics.exists() and bool(metrics.read_text()), "first steps")
        cluster.run("scancel", "--batch", "--signal=USR1", str(number))  # as Slurm does a minute before the limit
        result = cluster.wait(number, timeout=PATIENCE)
    finally:
        cluster.run("scancel", str(number))  # without the signal it would run for hours
    assert result.state == "COMPLETED", result.output.read_text()

    run = Run.open(folder)
    assert (run.summary.scenario, run.summary.ranks) == ("sync_sgd", 4)
    assert 0 < run.summary.steps < steps
    assert [line["step"] for line in run.metrics] == list(range(run.summary.steps))
    assert run.summary.test_accuracy is not None
    assert len(run.summary.params_sha256 or []) == 4
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert run.summary.faults == [], "an end that was asked for is no fault"


def test_what_it_trains_can_be_said_otherwise(tmp_path: Path) -> None:
    [words] = programs(words_of(SCRIPT, tmp_path, "--steps=5", "--model", "transformer", "--collective", "ring"))
    assert words[1:2] == ["--data=pydoc"]
    assert words[-5:] == ["--steps=5", "--model", "transformer", "--collective", "ring"]
    assert len([word for word in words if word.startswith(("--steps", "--model", "--collective"))]) == 3


def test_its_exit_status_is_that_of_the_training(tmp_path: Path) -> None:
    (tmp_path / "reference" / "farandole").mkdir(parents=True)
    (tmp_path / "mpirun").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "mpirun").chmod(0o755)
    assert run_it(SCRIPT, tmp_path).returncode == 3
