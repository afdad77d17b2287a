"""An MPI without ULFM: methods that need it report this in one line, and restart recovery works."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, UsageError, launch
from farandole.runtime import mpirun

NEEDED = "the ranks of this job do not outlive each other: start it with `mpirun --with-ft ulfm` of Open MPI 5"


@pytest.fixture
def plain_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI as it is normally started."""
    plain = replace(mpirun.detect(), fault_tolerant=False)
    monkeypatch.setattr(mpirun, "detect", lambda: plain)


@pytest.mark.usefixtures("plain_mpirun")
@pytest.mark.parametrize(
    ("scenario", "ranks", "options"),
    [
        ("backup", 2, {}),
        ("pipeline", 2, {"spares": 1}),
        ("parameter_server", 4, {"servers": 2, "replicas": 2}),
    ],
)
def test_scenarios_that_need_ulfm_report_it(scenario: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        launch(scenario, ranks, **options, steps=2, out=tmp_path / "run")
    assert str(refusal.value).startswith(NEEDED)
    assert "\n" not in str(refusal.value)


def test_an_open_mpi_without_ulfm_is_detected(tmp_path: Path) -> None:
    """As its ompi_info says; the exit status is that of bad input."""
    (tmp_path / "mpirun").write_text(f'#!/bin/sh\nexec "{mpirun.detect().mpirun}" "$@"\n')
    (tmp_path / "ompi_info").write_text("#!/bin/sh\necho options:ft_mpi_support:no\n")
    for program in ("mpirun", "ompi_info"):
        (tmp_path / program).chmod(0o755)
    words = ["run", "membership", "-n", "2", "--steps", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "farandole", *words],
        env={**os.environ, "FARANDOLE_MPIRUN": str(tmp_path / "mpirun")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"farandole: {NEEDED}")


@pytest.mark.usefixtures("plain_mpirun")
def test_restart_works_without_ulfm(tmp_path: Path) -> None:
    recipe: dict[str, Any] = {"steps": 12, "checkpoint_every": 4, "out": tmp_path / "run"}
    with pytest.raises(LaunchError):
        launch("restart", 2, fail="rank=1,step=9", **recipe)
    run = launch("restart", 2, **recipe)
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in run.summary.faults] == [(1, 9, "kill")]
    assert [line["step"] for line in run.metrics] == list(range(12))
    assert "goes on from step " in run.output
