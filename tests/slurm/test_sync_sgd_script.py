"""sync_sgd.sbatch over two nodes of two tasks: the hierarchical all-reduce sends less over the link between them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from farandole import Run, starter_task
from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import run

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "sync_sgd.sbatch"
STEPS = 10
PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10
N = 4 * PARAMETERS  # bytes of a gradient


def test_a_task_of_ones_own_is_submitted(cluster: Sandbox, checkout: Path) -> None:
    shutil.copy(starter_task.__file__, checkout / "my_task.py")
    job = run(cluster, checkout, SCRIPT, "--task", "my_task.py", "--steps", str(STEPS))
    assert job.state == "COMPLETED", job.output
    assert set(Run.open(job.folder).summary.test_metrics or {}) == {"error"}
    # The sandbox's GPUs are fake. A training that silently leaves the job's GPUs unused must fail.
    notes = [
        line for line in job.output.splitlines() if "there are cards (CUDA_VISIBLE_DEVICES=0,1), but torch" in line
    ]
    assert len(notes) == 1, job.output
    assert notes[0].startswith("farandole: all ranks compute on the CPU: ")


def test_hierarchical_all_reduce_sends_only_what_crosses(cluster: Sandbox, checkout: Path) -> None:
    options = ("--steps", str(STEPS), "--hidden", "32", "--collective", "hierarchical")
    job = run(cluster, checkout, SCRIPT, *options)
    assert job.state == "COMPLETED", job.output
    summary = json.loads((job.folder / "summary.json").read_text())
    assert len(set(summary["params_sha256"])) == 1
    # 2(M−1)/M of half of the gradient, M being 2; on one node it would be nothing, in a ring of all ranks 1.5 n.
    assert summary["bytes_sent"] == [pytest.approx(STEPS * N / 2, abs=STEPS * 8)] * 4
    assert summary["messages_sent"] == [STEPS * 2] * 4
