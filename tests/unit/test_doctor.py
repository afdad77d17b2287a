"""What the doctor says of an MPI whose ranks do not outlive each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.runtime.mpirun import Mpi
from farandole_tools.doctor import checks


@pytest.mark.parametrize(
    ("launcher_has_it", "library_has_it", "works"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_fault_tolerance_takes_the_launcher_and_the_library(
    launcher_has_it: bool, library_has_it: bool, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), launcher_has_it)
    probe = {"library": "Open MPI v5.0.11", "threads": "multiple", "fault_tolerance": library_has_it}
    monkeypatch.setattr(checks.mpirun, "detect", lambda: found)
    monkeypatch.setattr(checks, "_probe", lambda code: probe)
    [finding] = [finding for finding in checks.mpi() if finding.name == "MPI fault tolerance"]
    assert finding.works == works
    assert finding.seen == ("ULFM" if works else "none: a job does not outlive its ranks")
    assert "Open MPI 5" in finding.mend
