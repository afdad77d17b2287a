"""The context split under mpirun: attention and every step as without it, at the bytes and memory of the formula."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.errors import UsageError
from farandole.runtime import mpirun
from tests.parallel.conftest import RANKS_OF_DEAR_TESTS

TOLERANCE = {"ring float64": 1e-10, "ulysses float64": 1e-12, "contiguous float64": 1e-10,
             "ring float32": 1e-5, "ulysses float32": 1e-5}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS_OF_DEAR_TESTS)
def test_every_step_equals_the_unsplit_model(under_mpirun: Callable[..., Any], ranks: int) -> None:
    """The program asserts the bytes, the memory, and that all ranks have the same bits."""
    answer = under_mpirun("context_equals_whole.py", ranks)
    assert len(answer["attention"]) == 18
    for case, difference in answer["attention"].items():
        name, _, precision, *_ = case.split()
        assert difference <= TOLERANCE[f"{name} {precision}"], case
    assert answer["minimal"] <= 1e-12, "as the minimal file, which computes it in numpy"
    assert set(answer["training"]) == set(TOLERANCE)
    for case, found in answer["training"].items():
        assert found["parameters"] <= TOLERANCE[case], case
        assert found["loss"] <= TOLERANCE[case], case
        assert found["moved"] > 0.005, case


def test_the_minimal_file_shows_that_it_is_right() -> None:
    program = [sys.executable, "-m", "farandole.model_parallel.context.minimal", "--positions", "13"]
    found = mpirun.detect()
    done = subprocess.run(
        found.command(3, program),
        env=found.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [
        re.fullmatch(r"rank (\d) of 3: (\d) positions, difference (\S+)", each) for each in done.stdout.splitlines()
    ]
    assert sorted(line[1] for line in lines if line) == ["0", "1", "2"]
    assert sum(int(line[2]) for line in lines if line) == 13
    assert max(float(line[3]) for line in lines if line) < 1e-12


def test_the_scenario_learns_and_its_record_says_who_has_what(tmp_path: Path) -> None:
    run = launch("context_parallel", 2, steps=40, batch=8, hidden=32, depth=1, out=tmp_path / "run")
    losses = [line["loss"] for line in run.metrics]
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])
    assert run.summary.final_loss == losses[-1]
    assert run.rank_names == [
        "rank 0, positions 0 to 15 and 48 to 63",
        "rank 1, positions 16 to 31 and 32 to 47",
    ]
    assert run.summary.memory is not None
    assert run.summary.memory["measured"]["activations"] == pytest.approx(
        run.summary.memory["formula"]["activations"], rel=1e-3
    )
    assert len(set(run.summary.params_sha256 or [])) == 1
    spans = {event["name"] for event in run.trace}
    assert {"ring: keys and values", "ring: gradients", "all-reduce"} <= spans


@pytest.mark.parametrize(
    ("ranks", "options", "says"),
    [
        (2, {"data": "digits", "model": "mlp"}, "the context split divides sequences: give --model transformer"),
        (2, {"context": 3}, "a sequence of 3 positions cannot be divided over 2 ranks: use at most 1"),
        (3, {"attention": "ulysses"}, "4 heads cannot be divided equally over 3 ranks: use 1 or 2 or 4 ranks"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_one_line(
    tmp_path: Path, ranks: int, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as told:
        launch("context_parallel", ranks, out=tmp_path / "run", **options)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()
