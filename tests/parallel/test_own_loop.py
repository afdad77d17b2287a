"""A user's own loop, made distributed: compared with torch in one process, and its record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import Run, UsageError
from farandole.runtime.launcher import run_ranks

STEPS = 12  # 3 epochs of 45 samples, 14 at a time


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 3, 4, 7])
@pytest.mark.parametrize(("kind", "every"), [("adamw", 1), ("sgd", 3)])
def test_each_step_is_that_of_one_process(
    under_mpirun: Callable[..., Any], ranks: int, kind: str, every: int, tmp_path: Path
) -> None:
    found = under_mpirun("own_loop.py", ranks, kind, str(every), str(tmp_path))
    assert found["apart"] < 1e-10
    assert found["moved"] > 1e-2
    assert found["untouched"], "frozen, or used by no rank"
    a_ring = 2 * (ranks - 1)
    assert found["messages"] == [a_ring * ((step + 1) % every == 0) for step in range(STEPS)], "nothing in between"
    run = Run.open(tmp_path / f"{kind}-{every}")
    assert run.summary.scenario == "own_loop-sync_sgd"
    assert (run.summary.steps, run.summary.samples_per_s > 0) == (STEPS, True)
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert [line["step"] for line in run.metrics] == list(range(STEPS))
    assert run.metrics[0]["lr"] > run.metrics[-1]["lr"]
    assert {event["name"] for event in run.trace} >= {"forward and backward", "all-reduce", "update"} or ranks == 1


def test_a_folder_that_holds_a_run_ends_all_ranks_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("mine")
    program = tmp_path / "program.py"
    program.write_text(
        f"from farandole import OwnLoop\nwith OwnLoop(out={str(tmp_path / 'run')!r}):\n    print('in')\n"
    )
    with pytest.raises(UsageError, match="holds"):
        run_ranks([str(program)], 2, timeout_s=60)
    assert (tmp_path / "run" / "mine").read_text() == "mine"
