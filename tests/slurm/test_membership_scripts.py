"""membership, backup and parameter_server.sbatch: ranks die on other nodes than the first, and the job continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import run

SCRIPTS = Path(__file__).resolve().parents[2] / "slurm"


@pytest.mark.parametrize(
    ("name", "left"), [pytest.param("membership", [0, 1, 3, 4], marks=pytest.mark.cold), ("backup", [0, 1, 3])]
)
def test_a_spare_of_another_node_takes_the_place(cluster: Sandbox, checkout: Path, name: str, left: list[int]) -> None:
    job = run(cluster, checkout, SCRIPTS / f"{name}.sbatch", "--steps", "40", "--fail", "rank=2,step=17")
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert record.summary.scenario == name
    assert record.summary.members == left
    assert [(fault["rank"], fault["kind"]) for fault in record.summary.faults] == [(2, "kill")]
    assert [line["step"] for line in record.metrics] == list(range(40))
    assert len(set(record.summary.params_sha256 or [])) == 1


def test_a_server_of_another_node_goes_on(cluster: Sandbox, checkout: Path) -> None:
    chain = ("--servers", "2", "--replicas", "2", "--sync", "bsp")
    script = SCRIPTS / "parameter_server.sbatch"
    job = run(cluster, checkout, script, "--steps", "40", *chain, "--fail", "rank=1,step=17")
    assert job.state == "COMPLETED", job.output
    record = Run.open(job.folder)
    assert record.summary.members == [0, 2, 3, 4, 5]
    assert [(fault["rank"], fault["kind"]) for fault in record.summary.faults] == [(1, "kill")]
    assert record.summary.steps == 40
