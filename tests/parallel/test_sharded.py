"""ZeRO: divided training is that of one process, step by step; its bytes and its memory are those of the formulas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from farandole import LaunchError, Run, UsageError, launch
from farandole.runtime import mpirun
from farandole.runtime.launcher import run_ranks
from farandole.sharded.half import compute_in_bfloat16
from farandole.sharded.steps import halves
from tests.parallel.conftest import PROGRAMS
from tests.tasks import divided

STEPS = 4
IN_FLOAT32 = 2e-6  # of parameters that move by 0.03 and more, after each of 4 steps
STATE = {"perceptron": 2, "transformer": 1, "branches": 0}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [4, 2, 7, 1, 3])  # four are in two groups, too
def test_every_stage_equals_one_process_at_every_step(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("sharded_equals_single.py", ranks)
    check_muon(answer.pop("muon"), ranks)
    for stage, apart in answer.pop("float32").items():
        assert apart < IN_FLOAT32, stage
    check_accumulated(answer.pop("accumulated"), sum(answer["perceptron"]["1"]["units"].values()), ranks)
    assert list(answer) == list(STATE)
    for name, variants in answer.items():
        more = ["full"] if name == "transformer" else []  # blocks computed again from offloaded inputs
        assert list(variants) == ["1", "2", "3", "prefetch", "disk", "groups", *more]
        for variant, found in variants.items():
            assert found["apart"] < 1e-12, (name, variant)
            assert found["moved"] > 0.03, (name, variant)
        bits = {digest for key, found in variants.items() if key != "groups" for digest in found["digests"]}
        assert len(bits) == 1, "the same bits in all, for the sums are the same"
        check_bytes(variants, ranks, name)
        check_memory(variants, ranks, name)


def test_every_division_into_groups_equals_one_process(under_mpirun: Callable[..., Any]) -> None:
    """Hybrid sharding of 6 ranks: three groups of two, two of three; 2 × 2 is in the test above."""
    answer = under_mpirun("sharded_equals_single.py", 6, "in groups")
    assert list(answer["found"]) == [f"{stage} {over}" for stage in (1, 2, 3) for over in (2, 3)]
    for variant, (apart, sent) in answer["found"].items():
        stage, over = map(int, variant.split())
        groups = 6 // over
        within = groups * halves(stage, 2) * (over - 1) * answer["whole"]
        assert apart < 1e-12, variant
        assert sent == within + 2 * (groups - 1) * answer["whole"], variant


def check_muon(variants: dict[str, Any], ranks: int) -> None:
    """As torch's Muon and AdamW; each unit with a hidden matrix is gathered once more; two numbers for others only."""
    assert list(variants) == ["1", "2", "3", "prefetch", "disk", "groups"]
    for variant, found in variants.items():
        assert found["apart"] < 1e-12, variant
        assert found["moved"] > 0.03, variant
        for memory in found["memory"]:
            assert memory["measured"] == memory["formula"], variant
    units = variants["1"]["units"]
    whole, last = sum(units.values()), [*units.values()][-1]
    for variant, times in (("1", 2), ("2", 2), ("3", 3), ("prefetch", 3), ("disk", 3)):
        assert variants[variant]["sent"] == (ranks - 1) * (times * whole + whole - last) * STEPS
    vectors, matrices = (7 * 24 + 5 + 5 * 24), 7 * 24 * 24
    state = sum(memory["measured"]["optimizer_state"] for memory in variants["3"]["memory"])
    unit, work = 24 * 24 + 24, 4 * 24 * 24  # gathered by each rank; and two such matrices, and two squares of its side
    assert state == 8 * (matrices + 2 * vectors) + ranks * 8 * (unit + work)


def check_accumulated(variants: dict[str, Any], whole: int, ranks: int) -> None:
    """In 3 micro-batches: stages 2 and 3 add up each one's gradients over the ranks, stage 3 gathers for each."""
    assert all(apart < 1e-12 for apart, _ in variants.values())
    times = {"1": halves(1, 3), "2": halves(2, 3), "3": halves(3, 3)}
    assert list(times.values()) == [2, 1 + 3, 3 * 3]
    expected = {variant: each * (ranks - 1) * whole for variant, each in times.items()}
    if ranks == 4:
        expected |= {"prefetch": expected["3"], "groups": (2 * 3 * 3 + 2) * whole}  # in two groups; across them once
    assert {variant: sent for variant, (_, sent) in variants.items()} == expected


def check_bytes(variants: dict[str, Any], ranks: int, name: str) -> None:
    units = variants["1"]["units"]
    whole, root = sum(units.values()), units.get("root", 0)
    sent = {variant: found["sent"] for variant, found in variants.items()}
    alive = {variant: found["alive"] for variant, found in variants.items()}
    assert sent["1"] == sent["2"] == 2 * (ranks - 1) * whole * STEPS, "as data parallel"
    assert (halves(1), halves(2), halves(3)) == (2, 2, 3), "what is simulated"
    largest = max(nbytes for unit, nbytes in units.items() if unit != "root")
    assert alive["1"] == alive["2"] == [0, 0], "nothing is gathered before its use"
    assert alive["3"] == [root + largest, root], "one unit at a time, and none between forward and backward"
    assert sent["disk"] == sent["3"] == sent.get("full", sent["3"])
    assert alive.get("full", alive["3"]) == alive["3"]
    if name != "branches":  # it leaves a unit out, and uses another twice
        assert root == 0
        assert sent["3"] == 3 * (ranks - 1) * whole * STEPS, "half as much again"
        assert sent["prefetch"] == sent["3"]
        # Two at once, if the thread runs before the first is freed; `check_memory` makes sure that two are requested.
        assert largest <= alive["prefetch"][0] <= 2 * largest
        group = 2 if ranks == 4 else 1
        in_groups = (ranks // group) * 3 * (group - 1) * whole
        across = group * 2 * (ranks // group - 1) * whole // group
        assert sent["groups"] == (in_groups + across) * STEPS


def check_memory(variants: dict[str, Any], ranks: int, name: str) -> None:
    """By the paper's formula, with the largest unit that is gathered, and the root unit."""
    units = variants["1"]["units"]
    whole, root = sum(units.values()), units.get("root", 0)
    others = [nbytes for unit, nbytes in units.items() if unit != "root"]
    for variant, found in variants.items():
        for memory in found["memory"]:
            measured = memory["measured"]
            if variant == "full":
                kept = [memory[how].pop("activations") for how in ("measured", "formula")]
                assert kept[0] == pytest.approx(kept[1], rel=0.02)
                assert memory["offloaded"]["out"] == memory["offloaded"]["in"] > 0
            if (name, variant) != ("branches", "prefetch"):  # a branch's unit is not always between its neighbours
                assert measured == memory["formula"], (name, variant)
            pairs = pairwise(others)
            in_flight = root + (max(map(sum, pairs)) if variant == "prefetch" else max(others))
            part = whole / ((2 if ranks == 4 else 1) if variant == "groups" else ranks)
            gradients = whole if variant == "1" else part + in_flight
            parameters = whole if variant in ("1", "2") else part + in_flight
            rounding = 8 * len(units)  # a chunk may have one element more than another
            if (name, variant) != ("branches", "prefetch"):
                assert measured["parameters"] == pytest.approx(parameters, abs=rounding)
                assert measured["gradients"] == pytest.approx(gradients, abs=rounding)
            state = 0 if variant == "disk" else STATE[name] * part
            assert measured["optimizer_state"] == pytest.approx(state, abs=2 * rounding)


def test_it_equals_torchs_fsdp2(under_mpirun: Callable[..., Any]) -> None:
    """In bfloat16, too, because a quarter of the loss has exactly a quarter of its gradient."""
    answer = under_mpirun("sharded_like_fsdp2.py", 4, "2")
    assert list(answer) == ["plain", "prefetch", "half", "groups"]
    for variant, found in answer.items():
        assert found["apart"] < (1e-7 if variant == "half" else 1e-14), variant
        assert found["moved"] > 0.01, variant


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (3, {"optimizer": "adam", "stage": 2, "accumulate": 2}),
        (2, {"optimizer": "momentum", "lr": 0.05, "capabilities": (3, 1)}),
        (4, {"optimizer": "sgd", "lr": 0.3, "model": "transformer", "data": "pydoc", "hidden": 32, "batch": 16}),
        (2, {"optimizer": "sgd", "lr": 0.3, "precision": "bfloat16"}),
        (1, {"optimizer": "adam"}),
    ],
    ids=lambda given: f"{given}",
)
def test_fsdp_sgd_is_the_same_training(ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    ours, twin = (
        launch(name, ranks, steps=12, **options, out=tmp_path / name, timeout_s=120) for name in ("sharded", "fsdp_sgd")
    )
    losses = [[line["loss"] for line in run.metrics] for run in (ours, twin)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2 if "precision" in options else 1e-4)
    assert twin.summary.bytes_sent is None
    assert len(set(twin.summary.params_sha256 or [])) == 1, "every rank ends with the whole model"
    assert twin.summary.test_accuracy == pytest.approx(ours.summary.test_accuracy, abs=0.01)
    if ranks > 1:
        assert min(twin.summary.comm_s) > 0


def gathered(run: Run) -> int:
    """Return how many times rank 0 has gathered parameters."""
    events = json.loads((run.folder / "trace.json").read_text())["traceEvents"]
    return sum(event["name"] == "all-gather" and event["pid"] == 0 for event in events)


def test_fsdp_sgd_trains_tied_and_frozen_layers_as_sharded_does(tmp_path: Path) -> None:
    options = {"task": f"{divided.__file__}:awkward", "optimizer": "sgd", "lr": 0.2, "steps": 8, "batch": 32}
    losses = {}
    for precision, apart in (("float32", 1e-5), ("bfloat16", 0.05)):
        ours, twin = (
            launch(name, 2, precision=precision, **options, out=tmp_path / precision / name, timeout_s=120)
            for name in ("sharded", "fsdp_sgd")
        )
        metrics = [run.summary.test_metrics for run in (ours, twin)]
        assert metrics[0] == pytest.approx(metrics[1], rel=apart)
        assert metrics[0]["parameters"] == 11, "of six layers, two of which have one weight"
        assert metrics[0]["steps"] > options["steps"], "the buffer has counted the training, and the evaluation"
        losses[precision] = [line["loss"] for line in twin.metrics]
        assert losses[precision] == pytest.approx([line["loss"] for line in ours.metrics], rel=apart)
    assert losses["bfloat16"] != pytest.approx(losses["float32"], rel=1e-4), "it does compute in bfloat16"


def test_stage_2_of_fsdp_gathers_once_a_step(tmp_path: Path) -> None:
    once, twice = (
        gathered(launch("fsdp_sgd", 2, stage=stage, steps=6, out=tmp_path / str(stage), timeout_s=120))
        for stage in (2, 3)
    )
    assert once < twice <= 2 * once


def test_fsdp_sgd_refuses_statistics_in_bfloat16(tmp_path: Path) -> None:
    task = f"{divided.__file__}:with_statistics"
    with pytest.raises(UsageError, match=r"--precision bfloat16: 1\.running_mean must stay in float32"):
        launch("fsdp_sgd", 2, task=task, batch=32, precision="bfloat16", out=tmp_path / "run")


def test_fsdp_sgd_refuses_nccl_without_cards(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--backend nccl needs a CUDA card for each rank"):
        launch("fsdp_sgd", 2, device="cpu", backend="nccl", out=tmp_path / "run")


def test_the_larger_the_number_of_layers_the_closer_to_the_papers_formula(tmp_path: Path) -> None:
    options = {"hidden": 64, "depth": 40, "steps": 1, "optimizer": "adam"}
    held = []
    for stage in (1, 2, 3):
        run = launch("sharded", 4, stage=stage, **options, out=tmp_path / str(stage))
        measured = run.summary.memory["measured"]
        held.append(sum(measured[kind][0] for kind in ("parameters", "gradients", "optimizer_state")))
    whole = run.summary.memory["formula"]["optimizer_state"][0] * 4 / 2
    by_paper = [whole * (1 + 1 + 2 / 4), whole * (1 + 1 / 4 + 2 / 4), whole * (1 / 4 + 1 / 4 + 2 / 4)]
    assert held == pytest.approx(by_paper, rel=0.1)


@pytest.mark.parametrize("kind", ["prefetch", "when needed"])
def test_ranks_that_take_different_branches_end_in_one_line(kind: str) -> None:
    """Ranks would gather different units; none uses one unit's parameters as another's."""
    line = "rank [01] at step 2 has waited 2 s for rank [01] in exchange; ended by --wait-timeout 2"
    with pytest.raises(LaunchError, match=line):
        run_ranks([str(PROGRAMS / "sharded_apart.py"), kind], 2, timeout_s=60)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"stage": 2, "prefetch": True},
            "--prefetch is for --stage 3: with --stage 2 the parameters are on every rank",
        ),
        ({"shard_over": 3}, "--shard-over 3: 4 ranks make groups of 1, 2, 4"),
        ({"optimizer": "muon", "save": "trained"}, "--save and --load know no state of --optimizer muon"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(line)):
        launch("sharded", 4, **options, out=tmp_path / "run")


def test_statistics_that_need_float32_are_not_kept_in_bfloat16() -> None:
    with pytest.raises(UsageError, match=r"--precision bfloat16: 1.running_mean must stay in float32, and cannot"):
        compute_in_bfloat16(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


def test_it_learns_in_bfloat16_in_groups_with_the_state_on_a_disk(tmp_path: Path) -> None:
    options = {"steps": 30, "hidden": 32, "prefetch": True, "precision": "bfloat16", "shard_over": 2, "offload": "disk"}
    run = launch("sharded", 4, **options, lr=0.02, max_norm=1.0, accumulate=3, out=tmp_path / "run")
    assert run.summary.test_accuracy > 0.8
    assert len(set(run.summary.params_sha256)) == 1
    assert run.summary.memory["measured"] == run.summary.memory["formula"]
    units = [64 * 32 + 32, 32 * 32 + 32, 32 * 10 + 10]
    # The first unit's gradient in bfloat16 and its copy in float32, when the next micro-batch comes to the last unit.
    added_up = 2 * units[0] + 4 * units[0] + 2 * units[2]
    assert run.summary.memory["measured"]["gradients"] == [4 * sum(units) // 2 + added_up] * 4
    whole = launch("sharded", 4, steps=1, hidden=32, stage=1, out=tmp_path / "whole").summary.memory["measured"]
    in_flight = run.summary.memory["measured"]["parameters"]
    assert max(in_flight) < 2 * whole["parameters"][0] / 2, "two bytes for four, and not all at once"
    assert run.summary.memory["measured"]["optimizer_state"][0] == pytest.approx(whole["parameters"][0] / 2, rel=0.01)


def test_it_learns_and_every_rank_needs_samples_in_each_step(tmp_path: Path) -> None:
    run = launch("sharded", 3, steps=30, lr=0.02, hidden=32, out=tmp_path / "run")
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
