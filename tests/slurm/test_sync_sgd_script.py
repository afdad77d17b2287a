"""sync_sgd.sbatch over two nodes of two tasks: the hierarchical all-reduce finds them, and spares the link between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farandole_tools.slurm.sandbox import Sandbox
from tests.slurm.jobs import run

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "sync_sgd.sbatch"
STEPS = 10
PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10
N = 4 * PARAMETERS  # bytes of a gradient


def test_hierarchical_all_reduce_sends_only_what_crosses(cluster: Sandbox, checkout: Path) -> None:
    options = ("--steps", str(STEPS), "--hidden", "32", "--collective", "hierarchical")
    job = run(cluster, checkout, SCRIPT, *options)
    assert job.state == "COMPLETED", job.output
    summary = json.loads((job.folder / "summary.json").read_text())
    assert len(set(summary["params_sha256"])) == 1
    # 2(M−1)/M of half of the gradient, M being 2; on one node it would be nothing, in a ring of all ranks 1.5 n.
    assert summary["bytes_sent"] == [pytest.approx(STEPS * N / 2, abs=STEPS * 8)] * 4
    assert summary["messages_sent"] == [STEPS * 2] * 4
