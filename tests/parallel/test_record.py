"""The record: complete, one schema for all scenarios, correct figures."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from farandole import LaunchError, Run, UsageError, launch
from farandole.collectives.steps import chunk_slices
from farandole.runtime.record import Summary

SCHEMA = {
    "scenario", "ranks", "members", "seed", "device", "wall_s", "steps", "samples_per_s", "final_loss", "test_accuracy",
    "bytes_sent", "messages_sent", "compute_s", "comm_s", "wait_s", "staleness", "lead", "cleaned", "memory",
    "params_sha256", "faults", "versions", "joined", "compression", "server_changes",
    "delivery", "tasks", "stopping", "diverged", "unwritten", "test_metrics", "flops", "mfu",
    "hardware_flops", "hfu", "places",
}  # fmt: skip
PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return launch("sync_sgd", 3, steps=25, hidden=32, out=tmp_path_factory.mktemp("runs") / "run")


def test_the_schema_is_the_documented_one(run: Run) -> None:
    assert {field.name for field in fields(Summary)} == SCHEMA
    assert set(json.loads((run.folder / "summary.json").read_text())) == SCHEMA


def test_bytes_equal_the_rings_cost(run: Run) -> None:
    sizes = [4 * (part.stop - part.start) for part in chunk_slices(PARAMETERS, 3)]
    for rank, sent in enumerate(run.summary.bytes_sent or []):
        scattered = sum(sizes[(rank - step) % 3] for step in range(2))
        gathered = sum(sizes[(rank + 1 - step) % 3] for step in range(2))
        assert sent == 25 * (scattered + gathered)
    assert run.summary.messages_sent == [25 * 4] * 3


def test_metrics_have_a_line_per_step(run: Run) -> None:
    assert [line["step"] for line in run.metrics] == list(range(25))
    assert all(line["loss"] > 0 and line["samples"] > 0 for line in run.metrics)
    clock = [line["wall_s"] for line in run.metrics]
    assert clock == sorted(clock)
    assert clock[-1] <= run.summary.wall_s
    assert run.metrics[-1]["loss"] == run.summary.final_loss
    assert run.metrics[-1]["loss"] < run.metrics[0]["loss"]


def test_times_fit_into_the_wall_clock(run: Run) -> None:
    summary = run.summary
    for rank in range(3):
        busy = summary.compute_s[rank] + summary.comm_s[rank] + summary.wait_s[rank]
        # On a busy machine the time between the spans is unknown.
        assert 0 < busy <= 1.05 * summary.wall_s
    samples = sum(line["samples"] for line in run.metrics)
    assert summary.samples_per_s == pytest.approx(samples / summary.wall_s)


def test_the_trace_has_each_ranks_steps_on_one_clock(run: Run) -> None:
    events = run.trace
    forwards = [
        [event for event in events if event["pid"] == rank and event["name"] == "forward and backward"]
        for rank in range(3)
    ]
    assert [len(of_rank) for of_rank in forwards] == [25] * 3
    assert {event["cat"] for event in events} == {"compute", "communicate", "wait"}
    for step in range(24):
        starts = [[event["ts"] for event in forwards[rank]] for rank in range(3)]
        assert max(of[step] for of in starts) < min(of[step + 1] for of in starts), "a step needs all gradients before"


def test_the_options_are_kept(run: Run) -> None:
    assert run.config["hidden"] == 32
    assert run.config["collective"] == "ring"


@pytest.mark.parametrize("scenario", ["ddp_sgd", "horovod_sgd"])
def test_twins_leave_the_same_record(scenario: str, run: Run, tmp_path: Path) -> None:
    if scenario == "horovod_sgd" and importlib.util.find_spec("horovod") is None:
        pytest.skip("no Horovod: make setup builds it")
    twin = launch(scenario, 3, steps=25, hidden=32, out=tmp_path / "run")
    assert twin.summary.bytes_sent is None
    assert twin.summary.samples_per_s > 0
    assert min(twin.summary.comm_s) > 0
    assert len(set(twin.summary.params_sha256 or [])) == 1
    losses = [line["loss"] for line in twin.metrics]
    assert losses == pytest.approx([line["loss"] for line in run.metrics], rel=1e-3), "the same training"


def test_a_slow_rank_makes_the_others_wait(tmp_path: Path) -> None:
    # The rank sleeps for nearly all of a step, so a busy machine's noise matters little.
    summary = launch("sync_sgd", 3, hidden=256, steps=12, slow="rank=1,factor=80", out=tmp_path / "run").summary
    assert summary.compute_s[1] > 1.5 * max(summary.compute_s[0], summary.compute_s[2])
    assert summary.wait_s[1] < 0.5 * min(summary.wait_s[0], summary.wait_s[2])


def test_shards_from_files_train_the_same_model(run: Run, tmp_path: Path) -> None:
    read = launch("sync_sgd", 3, steps=25, hidden=32, loading="files", peak_flops=1e9, out=tmp_path / "run")
    assert read.summary.params_sha256 == run.summary.params_sha256
    samples = sum(line["samples"] for line in run.metrics)
    assert run.summary.flops == read.summary.flops == 3 * 2 * (64 * 32 + 32 * 32 + 32 * 10) * samples
    assert run.summary.mfu is None
    assert read.summary.mfu == pytest.approx(read.summary.flops / (read.summary.wall_s * 3 * 1e9))


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_refused_run_leaves_no_record_and_its_folder_is_free(ranks: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="--place"):
        launch("parameter_server", ranks, steps=2, place="servers=9", out=out)
    assert not out.exists()


def test_a_refused_start_keeps_the_record_of_an_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(LaunchError):
        launch("restart", 2, steps=8, checkpoint_every=2, fail="rank=1,step=5", out=out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="--lr"):
        launch("restart", 2, steps=8, checkpoint_every=2, lr=0.3, out=out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_divergence_and_a_fault_that_never_occurs_are_reported_and_the_record_is_json(tmp_path: Path) -> None:
    options = ["--steps", "12", "--lr", "1e30", "--chaos", "mtbf=1000000s", "--out", str(tmp_path / "r"), "--json"]
    command = [sys.executable, "-m", "farandole", "run", "sync_sgd", "-n", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert done.returncode == 1
    summary = json.loads(done.stdout, parse_constant=refuse)
    assert (summary["final_loss"], summary["diverged"]) == (None, {"step": 1, "rank": 0})
    assert "--chaos mtbf=1e+06s,seed=0 never struck" in done.stderr
    assert done.stderr.count("sync_sgd diverged: the loss of rank 0 is not finite at step 1") == 1
    assert len(done.stderr.splitlines()) == 2
    for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    assert Run.open(tmp_path / "r").summary.steps == 12
