"""ZeRO: divided training is that of one process, step by step; its bytes and its memory are those of the formulas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import UsageError, launch
from farandole.runtime import mpirun

STEPS = 4
STATE = {"perceptron": 2, "transformer": 1, "branches": 0}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_stage_equals_one_process_at_every_step(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("sharded_equals_single.py", ranks)
    assert list(answer) == list(STATE)
    for name, stages in answer.items():
        assert list(stages) == ["1", "2", "3"]
        for stage, found in stages.items():
            assert found["apart"] < 1e-12, (name, stage)
            assert found["moved"] > 0.03, (name, stage)
        assert len({digest for found in stages.values() for digest in found["digests"]}) == 1, "the same bits in all"
        check_bytes(stages, ranks, name)
        check_memory(stages, ranks, name)


def check_bytes(stages: dict[str, Any], ranks: int, name: str) -> None:
    units = stages["1"]["units"]
    whole, root = sum(units.values()), units.get("root", 0)
    assert stages["1"]["sent"] == stages["2"]["sent"] == 2 * (ranks - 1) * whole * STEPS, "as data parallel"
    largest = max(nbytes for unit, nbytes in units.items() if unit != "root")
    assert stages["1"]["alive"] == stages["2"]["alive"] == [0, 0], "nothing is gathered before its use"
    assert stages["3"]["alive"] == [root + largest, root], "one unit at a time, and none between forward and backward"
    if name != "branches":  # which leaves a unit out, and uses another twice
        assert root == 0
        assert stages["3"]["sent"] == 3 * (ranks - 1) * whole * STEPS, "half as much again"


def check_memory(stages: dict[str, Any], ranks: int, name: str) -> None:
    """By the paper's formula, with the largest unit that is gathered, and the root unit."""
    units = stages["1"]["units"]
    whole, root = sum(units.values()), units.get("root", 0)
    largest = max(nbytes for unit, nbytes in units.items() if unit != "root")
    for stage, found in stages.items():
        for memory in found["memory"]:
            measured = memory["measured"]
            assert measured == memory["formula"], (name, stage)
            in_flight = root + largest
            parameters, gradients = {
                "1": (whole, whole), "2": (whole, whole / ranks + in_flight),
                "3": (whole / ranks + in_flight, whole / ranks + in_flight),
            }[stage]  # fmt: skip
            rounding = 8 * len(units)  # a chunk may have one element more than another
            assert measured["parameters"] == pytest.approx(parameters, abs=rounding)
            assert measured["gradients"] == pytest.approx(gradients, abs=rounding)
            assert measured["optimizer_state"] == pytest.approx(STATE[name] * whole / ranks, abs=2 * rounding)


def test_the_larger_the_number_of_layers_the_closer_to_the_papers_formula(tmp_path: Path) -> None:
    options = {"hidden": 64, "depth": 40, "steps": 2, "optimizer": "adam"}
    held = []
    for stage in (1, 2, 3):
        run = launch("sharded", 4, stage=stage, **options, out=tmp_path / str(stage))
        measured = run.summary.memory["measured"]
        held.append(sum(measured[kind][0] for kind in ("parameters", "gradients", "optimizer_state")))
    whole = run.summary.memory["formula"]["optimizer_state"][0] * 4 / 2
    by_paper = [whole * (1 + 1 + 2 / 4), whole * (1 + 1 / 4 + 2 / 4), whole * (1 / 4 + 1 / 4 + 2 / 4)]
    assert held == pytest.approx(by_paper, rel=0.1)


def test_it_learns_and_every_rank_needs_samples_in_each_step(tmp_path: Path) -> None:
    run = launch("sharded", 3, steps=60, hidden=32, out=tmp_path / "run")
    assert run.summary.test_accuracy > 0.8
    assert len(set(run.summary.params_sha256)) == 1
    with pytest.raises(UsageError, match="--batch 2: 3 ranks share the samples, and would have none left for step 479"):
        launch("sharded", 3, steps=480, batch=2, hidden=32, out=tmp_path / "few")


def test_the_minimal_file_shows_that_it_is_right() -> None:
    found = mpirun.detect()
    command = found.command(3, [sys.executable, "-m", "farandole.sharded.minimal", "--steps", "20"])
    done = subprocess.run(
        command, env=found.environment(os.environ), capture_output=True, text=True, timeout=120, check=True
    )
    pattern = r"rank \d of 3: loss (\S+), alone (\S+); parts differ by (\S+); holds 138,656 bytes, .*"
    lines = [re.fullmatch(pattern, line) for line in done.stdout.splitlines()]
    assert len(lines) == 3
    for line in lines:
        assert line
        assert line[1] == line[2]
        assert float(line[3]) < 1e-12
