"""``farandole bench allreduce``: our all-reduces against MPI's own."""

from __future__ import annotations

import json
from typing import Any

from farandole.runtime.launcher import run_ranks

ROUNDS_PROGRAM = "farandole.bench.allreduce_rounds"


def rows(ranks: int) -> list[dict[str, Any]]:
    """One row for each of our algorithms and each length of vector."""
    measured: list[dict[str, Any]] = json.loads(run_ranks(["-m", ROUNDS_PROGRAM], ranks).stdout[0])
    return measured
