"""elastic_horovod.sbatch: a worker dies, its node is no longer used, and another node replaces it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import run

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "elastic_horovod.sbatch"


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")
def test_a_worker_on_another_node_takes_the_place(cluster: Sandbox, checkout: Path) -> None:
    # Two workers, so the survivor detects the death at once: a third might wait for all of --gloo-timeout.
    words = ("--workers", "2", "--steps", "40", "--fail", "rank=1,step=17")
    job = run(cluster, checkout, SCRIPT, *words)
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert record.summary.scenario == "elastic_horovod"
    assert record.summary.steps == 40
    assert len(set(record.summary.params_sha256 or [])) == 1
    assert record.summary.members == [0, 2]
    assert [(fault["rank"], fault["kind"], fault["steps_lost"]) for fault in record.summary.faults] == [(1, "kill", 2)]
    assert [line["step"] for line in record.metrics] == list(range(40))
