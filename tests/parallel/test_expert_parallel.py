"""The expert split under mpirun: a layer and every step as on one process, at the bytes and memory of the formula."""

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

TOLERANCE, IN_FLOAT32 = 1e-12, 2e-6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", RANKS_OF_DEAR_TESTS)
def test_every_step_equals_one_process_with_all_experts(under_mpirun: Callable[..., Any], ranks: int) -> None:
    """The program asserts the order of dispatch, bytes, memory, and that all ranks have the same shared parameters."""
    answer = under_mpirun("experts_equal_whole.py", ranks)
    assert len(answer["layer"]) == 16
    for case, difference in answer["layer"].items():
        assert difference <= TOLERANCE, case
    assert answer["minimal"] <= TOLERANCE, "as the minimal file, which computes it in numpy"
    assert len(answer["training"]) == 5
    for case, found in answer["training"].items():
        limit = IN_FLOAT32 if "float32" in case else TOLERANCE
        assert found["parameters"] <= limit, case
        assert found["loss"] <= limit, case
        assert found["moved"] > 0.005, case
        assert (found["dropped"] > 0.1) == case.endswith("capacity"), case
        assert found["dropped"] == 0 or case.endswith("capacity"), case


def test_the_minimal_file_shows_that_it_is_right() -> None:
    program = [sys.executable, "-m", "farandole.model_parallel.expert.minimal", "--tokens", "31", "--experts", "5"]
    found = mpirun.detect()
    done = subprocess.run(
        found.command(3, program),
        env=found.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    form = r"rank (\d) of 3: experts \[(.*)\] computed (\d+) tokens; of its own (\d+) dropped (\d+); difference (\S+)"
    lines = [match for line in done.stdout.splitlines() if (match := re.fullmatch(form, line))]
    assert {line[1]: line[2] for line in lines} == {"0": "0, 1", "1": "2, 3", "2": "4"}
    computed, own, dropped = (sum(int(line[place]) for line in lines) for place in (3, 4, 5))
    assert computed + dropped == own == 31
    assert max(float(line[6]) for line in lines) < 1e-12


def test_the_scenario_learns_and_its_record_says_how_tokens_were_routed(tmp_path: Path) -> None:
    run = launch("expert_parallel", 2, steps=40, batch=8, hidden=32, depth=1, experts=3, out=tmp_path / "run")
    losses = [line["loss"] for line in run.metrics]
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])
    assert run.summary.final_loss == losses[-1]
    assert run.rank_names == ["rank 0, experts 0 to 1", "rank 1, expert 2"]
    for line in run.metrics:
        loads = [line[f"load_0_{expert}"] for expert in range(3)]
        assert sum(loads) == pytest.approx(1)
        assert line["dropped"] == pytest.approx(sum(max(0, load - 1.25 / 3) for load in loads), abs=2e-3)
        assert 3 * min(loads) - 1e-5 <= line["balance_loss"] <= 3 * max(loads) + 1e-5, "E times a mean of the loads"
    memory = run.summary.memory
    assert memory is not None
    assert memory["measured"]["parameters"] == memory["formula"]["parameters"]
    assert memory["measured"]["parameters"][0] > memory["measured"]["parameters"][1], "two experts and one"
    assert memory["measured"]["activations"] == pytest.approx(memory["formula"]["activations"], rel=1e-3)
    spans = {event["name"] for event in run.trace}
    assert {"counts: all-gather", "dispatch", "combine", "dispatch, backward", "combine, backward"} <= spans


@pytest.mark.parametrize(
    ("ranks", "options", "says"),
    [
        (2, {"data": "digits", "model": "mlp"}, "experts replace the feed-forward networks of a transformer: give"),
        (2, {"top_k": 9}, "--top-k 9 of 8 experts: give at most 8"),
        (3, {"batch": 2}, "--batch 2 leaves some of 3 ranks without a sample: give at least 4"),
        (2, {"experts": 0}, "--experts"),
        (2, {"capacity": -1.0}, "--capacity"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, ranks: int, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as told:
        launch("expert_parallel", ranks, out=tmp_path / "run", **options)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()
