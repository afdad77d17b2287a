"""Downpour: Adagrad where it must be, no gradient lost, few bytes, accurate with a slow replica, labels aligned."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.errors import UsageError
from farandole.runtime.launcher import run_ranks
from farandole.runtime.record import Run, Summary

PROGRAM = Path(__file__).parent / "programs" / "downpour_replica.py"
WORKER = 2  # in a launch of three: manager, server, replica


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of one replica with two servers; one launch for all cases."""
    names = ["float64,60,1,1,wait", "float32,60,1,1,wait", "float64,23,1,5,wait", "float64,23,3,5,overlap"]
    output = run_ranks([str(PROGRAM), str(tmp_path_factory.mktemp("runs")), *names], 4, timeout_s=120)
    answer: dict[str, Any] = json.loads(output.stdout[0].strip().splitlines()[-1])
    return answer


# 60 steps, each rounded; float32 has about 1e-7 of parameters near 1.
@pytest.mark.parametrize(("case", "tolerance"), [("float64,60,1,1,wait", 1e-12), ("float32,60,1,1,wait", 2e-5)])
def test_one_replica_is_adagrad_in_every_step(cases: dict[str, Any], case: str, tolerance: float) -> None:
    found = cases[case]
    assert found["gradients"] == 60
    assert found["updates"] == [60]
    assert found["difference"] <= tolerance
    assert found["difference_at_the_end"] <= tolerance
    assert found["moved"] > 0.3, "the model was trained at all"
    assert found["staleness"] == {"0": 60}


def test_a_replica_pushes_its_remaining_gradients_at_the_end(cases: dict[str, Any]) -> None:
    waiting = cases["float64,23,1,5,wait"]
    assert waiting["gradients"] == 23
    assert waiting["clocks"] == [4, 9, 14, 19, 22]
    overlapping = cases["float64,23,3,5,overlap"]
    assert 24 <= overlapping["gradients"] <= 24 + 3, "whole fetches, and what overlaps the answer that none is left"
    assert overlapping["clocks"][-1] == overlapping["gradients"] - 1
    for found in (waiting, overlapping):
        assert found["updates"] == [len(found["clocks"])]
        assert found["computed"] > 0.1
        assert found["lost"] <= 1e-14 * found["gradients"], "pushed gradients are those computed, all and once"
        assert found["difference"] > 0.01, "local steps are not Adagrad"


def test_a_slow_replica_among_fast_ones_learns_the_digits(tmp_path: Path) -> None:
    summary = launch(
        "downpour", 6, servers=2, n_fetch=5, n_push=5, slow="rank=5,factor=4", out=tmp_path / "run"
    ).summary
    assert summary.test_accuracy is not None
    assert summary.test_accuracy >= 0.75
    assert summary.staleness is not None
    assert sum(summary.staleness.values()) == summary.steps, "every push was applied, and its staleness noted"
    # The work is 360 fetches: as many pushes, and at most one more by each replica at the end.
    assert 360 <= summary.steps <= 360 + 3
    assert max(map(int, summary.staleness)) >= 1, "the replicas did work at the same time"
    assert summary.lead is not None
    assert sum(summary.lead.values()) == 360
    assert max(map(int, summary.lead)) >= 10, "the fast ones did not wait for the slow one"
    assert len(set(summary.params_sha256 or [])) == 1


def test_tasks_of_the_manager_are_downpour_with_one_worker(tmp_path: Path) -> None:
    alone = {"steps": 60, "n_fetch": 4, "n_push": 4, "overlap": False}
    own = launch("downpour", 3, **alone, out=tmp_path / "own").summary
    given = launch("downpour", 3, **alone, tasks=True, out=tmp_path / "given").summary
    assert given.params_sha256 == own.params_sha256, "the same batches, bit by bit"
    assert given.tasks == {"done_by": {"2": 15}, "resubmitted": 0, "backups": 0}


def test_each_sample_counts_once_per_epoch_when_a_worker_is_killed(tmp_path: Path) -> None:
    """The pushes count how often each sample was computed; one worker dies during a task, another is slow."""
    samples, batch, epochs = 1437, 96, 2
    steps = epochs * -(-samples // batch)
    words = ["--batch", str(batch), "--steps", str(steps), "--servers", "2", "--fail", "rank=4,step=5"]
    words += ["--n-fetch", "2", "--n-push", "2", "--tasks", "--out", str(tmp_path / "run")]
    output = run_ranks([str(PROGRAM.with_name("tasks_counted.py")), *words], 7, timeout_s=120)
    found = json.loads(next(line for line in output.stdout[0].splitlines() if line.startswith("{")))
    summary = Run(tmp_path / "run").summary
    assert found == {"samples": samples, "counts": [epochs]}
    assert [fault["rank"] for fault in summary.faults] == [4]
    assert summary.tasks is not None
    assert sum(summary.tasks["done_by"].values()) == summary.steps == steps * 4 / 2, "the first server counts tasks"
    assert summary.tasks["done_by"]["4"] == 5
    assert summary.tasks["resubmitted"] + summary.tasks["backups"] >= 1, "the one it held when it died"
    assert summary.tasks["done_by"].get("6", 0) < summary.tasks["done_by"]["5"], "who is slow receives fewer"


def test_bytes_fall_as_fetches_and_pushes_do(tmp_path: Path) -> None:
    def run(n_fetch: int, n_push: int) -> Summary:
        frequency = {"n_fetch": n_fetch, "n_push": n_push, "overlap": False, "steps": 40}
        return launch("downpour", 3, **frequency, out=tmp_path / f"{n_fetch}-{n_push}").summary

    every, seldom = run(1, 1), run(10, 4)
    assert every.bytes_sent is not None
    assert seldom.bytes_sent is not None
    server = WORKER - 1
    # Headers are about 150 bytes, a report of every iteration among them; the parameters 104 kB.
    assert every.bytes_sent[WORKER] / seldom.bytes_sent[WORKER] == pytest.approx(4, rel=0.05)
    assert every.bytes_sent[server] / seldom.bytes_sent[server] == pytest.approx(10, rel=0.05)
    assert (every.steps, seldom.steps) == (40, 10)


def test_alignment_makes_one_model_of_many_label_sets(tmp_path: Path) -> None:
    same: dict[str, Any] = {"label_sets": 6}
    aligned = launch("downpour", 5, **same, out=tmp_path / "aligned").summary.test_accuracy
    unaligned = launch("downpour", 5, **same, align=False, out=tmp_path / "unaligned").summary.test_accuracy
    assert aligned is not None
    assert unaligned is not None
    assert aligned >= 0.75
    assert unaligned <= 0.6, "nobody can name more than the six classes he knows"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "2"], "a manager, 1 server(s) and at least 1 worker need 3"),
        (["--n-fetch", "0"], "--n-fetch"),
        (["-n", "3", "--tasks", "--n-fetch", "2"], "--tasks does not go with --n-fetch 2"),
        (["-n", "4", "--tasks", "--label-sets", "6"], "--tasks does not go with --label-sets"),
        (["-n", "4", "--tasks", "--servers", "2", "--replicas", "2"], "--tasks does not go with --replicas"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], says: str, command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = command("run", "downpour", *words, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_too_few_labels_for_all_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give each at least 5"):
        launch("downpour", 4, label_sets=4, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
