"""Downpour: Adagrad where it must be, nothing lost, few bytes, accurate with a slow replica, labels aligned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole import launch
from farandole.errors import UsageError
from farandole.runtime.launcher import run_ranks
from farandole.runtime.record import Summary

PROGRAM = Path(__file__).parent / "programs" / "downpour_replica.py"
WORKER = 2  # in a launch of three: manager, server, replica


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of one replica with two servers; one launch for all cases."""
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


def test_the_rest_is_pushed_at_the_end(cases: dict[str, Any]) -> None:
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
    # 360 fetches stand for the work: as many pushes, and at most one more of what each replica computed at the end.
    assert 360 <= summary.steps <= 360 + 3
    assert max(map(int, summary.staleness)) >= 1, "the replicas did work at the same time"
    assert summary.lead is not None
    assert sum(summary.lead.values()) == 360
    assert max(map(int, summary.lead)) >= 10, "the fast ones did not wait for the slow one"
    assert len(set(summary.params_sha256 or [])) == 1


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
    aligned = launch("downpour", 5, label_sets=6, out=tmp_path / "aligned").summary.test_accuracy
    unaligned = launch("downpour", 5, label_sets=6, align=False, out=tmp_path / "unaligned").summary.test_accuracy
    assert aligned is not None
    assert unaligned is not None
    assert aligned >= 0.75
    assert unaligned <= 0.6, "nobody can name more than the six classes he knows"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "2"], "a manager, 1 server(s) and at least 1 worker need 3"),
        (["--n-fetch", "0"], "--n-fetch"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "farandole", "run", "downpour", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_too_few_labels_for_all_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give each at least 5"):
        launch("downpour", 4, label_sets=4, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
