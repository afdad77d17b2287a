"""Online training follows the drift, and served parameters are complete and fresh, and do not block the workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole import launch
from farandole.errors import UsageError
from farandole.parameter_server.placement import Placement
from farandole.runtime import command_line
from farandole.runtime.record import Run
from farandole.scenarios.online import Config

PUBLISH_EVERY_S = 0.25
READER = 6
SAMPLES, BATCH, RATE = 12_000, 48, 6000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Manager, 2 servers, 3 workers, and the reader."""
    options: dict[str, Any] = {"servers": 2, "sync": "ssp", "samples": SAMPLES, "batch": BATCH, "rate": RATE}
    options |= {"publish_every": PUBLISH_EVERY_S, "out": tmp_path_factory.mktemp("online")}
    return launch("online", 7, timeout_s=180, **options)


def over(lines: list[dict[str, Any]], name: str, key: str, lowest: float) -> float:
    """Return the mean of `name` over the lines whose `key` is at least `lowest`."""
    return float(np.mean([line[name] for line in lines if line[key] >= lowest]))


def test_online_follows_the_drift_and_a_frozen_model_does_not(run: Run) -> None:
    """At the stream's end about 0.9 of the samples are predicted right, by the frozen model 0.1 to 0.2."""
    online, frozen = (over(run.metrics, name, "angle", 81) for name in ("test_then_train", "frozen"))
    assert online > 0.75
    assert frozen < online - 0.3
    early = [line for line in run.metrics if line["angle"] < 0.15 * 90]
    assert all(line["frozen"] == line["test_then_train"] for line in early), "until then it is the same model"


def test_the_summary_has_the_accuracy_of_the_last_tenth(run: Run) -> None:
    assert run.summary.test_accuracy == pytest.approx(over(run.metrics, "test_then_train", "angle", 81), abs=0.03)


def test_every_sample_of_the_stream_is_used(run: Run) -> None:
    summary, metrics = run.summary, run.metrics
    assert sum(line["samples"] for line in metrics) == SAMPLES
    assert summary.staleness is not None
    assert summary.lead is not None
    batches = sum(-(-len(range(worker, SAMPLES, 3)) // 16) for worker in range(3))
    assert sum(summary.staleness.values()) == sum(summary.lead.values()) == summary.steps == batches
    assert metrics[0]["angle"] < 1
    assert metrics[-1]["angle"] > 89


def test_versions_only_grow_and_the_last_answers_are_the_final_parameters(run: Run) -> None:
    served = run.serving
    assert {line["reader"] for line in served} == {READER}
    assert all(set(line["versions"]) == {"1", "2"} for line in served)
    for before, after in pairwise(served):
        assert all(before["versions"][server] <= after["versions"][server] for server in ("1", "2"))
        assert before["position"] <= after["position"]
    assert served[-1]["versions"] == {"1": run.summary.steps, "2": run.summary.steps}
    assert served[-1]["position"] == SAMPLES
    assert served[-1]["age_updates"] == 0


def test_the_reader_serves_what_is_being_learned(run: Run) -> None:
    """The reader's questions are held out, so it may do a little worse than the workers."""
    assert over(run.serving, "accuracy", "angle", 60) > over(run.metrics, "test_then_train", "angle", 60) - 0.15
    assert over(run.serving, "accuracy", "angle", 60) > over(run.metrics, "frozen", "angle", 60) + 0.25


def test_parameters_are_read_at_the_requested_interval(run: Run) -> None:
    """Never earlier; later by a round of questions, or as long as a busy computer delays the reader."""
    served = run.serving
    read_at = {line["reading"]: line["wall_s"] - line["age_s"] for line in served}
    assert list(read_at) == list(range(len(read_at)))
    gaps = np.diff(list(read_at.values()))[:-1]  # the last reading comes when the workers have ended
    assert len(gaps) >= 2
    assert min(gaps) >= PUBLISH_EVERY_S - 0.01
    assert np.median(gaps) < PUBLISH_EVERY_S + 0.5
    assert max(line["age_updates"] for line in served) > 0, "in between they grow old"


def test_each_sample_is_tested_once_and_trained_on_once(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    answer = under_mpirun("online_samples.py", 6, str(tmp_path / "run"))
    assert sorted(chain(*answer["taken"])) == list(range(1000))
    for taken, used in zip(answer["taken"], answer["used"], strict=True):
        assert sum(used) == len(taken)
    assert [bool(taken) for taken in answer["taken"]] == [False, False, True, True, True, False]
    summary = Run(tmp_path / "run").summary
    assert summary.steps == 21, "bsp: a step is 16 samples of each worker, and the reader is none of them"
    assert summary.lead == {"0": 63}
    says = ["--batch 2: give each of 3 workers", "--samples 2: give each of 3", "--degrees nan", "--rate 1: batches"]
    for text, refusal in zip(says, answer["refusals"], strict=True):
        assert text in refusal


def test_a_read_is_never_torn(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("read_while_training.py", 6)
    seen = [{int(server): version for server, version in versions.items()} for versions in answer["seen"]]
    total = answer["workers"] * answer["pushes"]
    assert answer["torn"] == 0
    assert seen[-1] == {1: total, 2: total}
    assert len({tuple(versions.items()) for versions in seen}) > 10, "it did read while they pushed"
    for before, after in pairwise(seen):
        for one, other in ((1, 2), (2, 1)):
            # A worker pulls from both servers before it pushes again: it is at most one push ahead on either.
            assert after[one] >= before[other] - answer["workers"]
            assert after[one] >= before[one]


def test_a_reader_may_have_any_rank(tmp_path: Path) -> None:
    run = launch("online", 4, place="servers=1,readers=2,workers=3", samples=2000, rate=2000, out=tmp_path)
    assert run.summary.wall_s >= 2000 / 2000
    assert {line["reader"] for line in run.serving} == {2}
    assert run.serving[-1]["versions"] == {"1": run.summary.steps}
    assert run.summary.steps == -(-2000 // BATCH)


def test_readers_are_the_last_ranks_unless_placed_otherwise() -> None:
    usual = Placement.usual(7, servers=2, readers=1)
    assert (usual.servers, usual.workers, usual.readers) == ((1, 2), (3, 4, 5), (6,))
    assert usual.roles(6) == ["reader"]
    assert Placement.usual(5).readers == ()
    placed = Placement.parse("servers=0,readers=1+3,workers=2", 4)
    assert placed.readers == (1, 3)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("servers=1,workers=2-3,readers=2", "nothing else"),
        ("servers=1+3,workers=2,readers=1", "nothing else"),
        ("servers=1,readers=2+3", "at least one server and one worker"),
        ("servers=1,workers=2,readers=3+4", "there is no rank 4"),
    ],
)
def test_a_reader_that_shares_its_rank_is_refused(place: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Placement.parse(place, 4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--steps", "3"], "--steps"),
        (["--tree", "2"], "--tree"),
        (["--samples", "0"], ">= 1"),
        (["--publish-every", "0"], "> 0"),
        (["--freeze-after", "1.5"], "<= 1"),
        (["--readers", "-1"], ">= 0"),
        (["--rate", "0"], "> 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        command_line.parse(Config, words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["online", "-n", "3"], "1 reader(s) and at least 1 worker need 4"),
        (["online", "-n", "4", "--batch", "0"], "--batch"),
        (["parameter_server", "-n", "4", "--place", "servers=1,workers=2,readers=3"], "readers are for the scenario"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "farandole", "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not list((tmp_path / "runs").glob("online*")), "a refused run leaves no record"
