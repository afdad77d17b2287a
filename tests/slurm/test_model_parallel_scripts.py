"""The model-parallel batch scripts: each stage of a pipeline on its node, and the mode that is chosen for two nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import run

SLURM = Path(__file__).resolve().parents[2] / "slurm"
ROLES = {
    "pipeline": [f"rank {rank}, stage {rank}" for rank in range(4)],
    "hybrid": [f"rank {rank}, pipeline {rank // 2}, stage {rank % 2}" for rank in range(4)],
}


@pytest.mark.parametrize("name", ROLES)
def test_every_stage_learns_on_its_node(cluster: Sandbox, checkout: Path, name: str) -> None:
    job = run(cluster, checkout, SLURM / f"{name}.sbatch", "--steps", "40")
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert record.rank_names == ROLES[name]
    assert (record.summary.steps, record.summary.faults) == (40, [])
    digests = record.summary.params_sha256 or []
    assert len(set(digests)) > 1, "stages"
    assert digests[:2] == digests[2:] or name != "hybrid", "the same stages of two pipelines"
    assert len(digests) == 4
    assert record.summary.test_accuracy is not None
    assert record.summary.test_accuracy > 0.5, "of ten classes"
    assert json.loads((job.folder / "plan.json").read_text())["bounds"][-1] == 6


def test_two_nodes_train_in_the_mode_that_is_predicted_to_be_fastest(cluster: Sandbox, checkout: Path) -> None:
    job = run(cluster, checkout, SLURM / "adaptive.sbatch", "--steps", "20")
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert (record.summary.steps, record.summary.ranks, record.summary.faults) == (20, 4, [])
    best, *others = record.modes["modes"]
    assert best["fits"]
    assert best["step_s"] == min(mode["step_s"] for mode in (best, *others) if mode["fits"])
    assert len(record.modes["devices"]) == 4
    parts = best["pipeline"] * best["tensor"]
    assert best["data"] * parts == 4
    digests = record.summary.params_sha256 or []
    assert digests == digests[:parts] * best["data"], "the same part of each copy of the model"
