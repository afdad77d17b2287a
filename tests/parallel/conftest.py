"""How the tests here run a program under mpirun and get its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole.runtime.launcher import run_ranks

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def under_mpirun() -> Callable[..., Any]:
    """Run tests/parallel/programs/NAME on so many ranks; an assertion that fails there fails here.

    Rank 0's last line is the program's answer, as JSON: having it proves that the program ran to its end.
    """

    def run(name: str, ranks: int, *arguments: str, timeout_s: float = 120) -> Any:
        output = run_ranks([str(PROGRAMS / name), *arguments], ranks, timeout_s=timeout_s)
        return json.loads(output.stdout[0].strip().splitlines()[-1])

    return run
