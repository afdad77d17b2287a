"""Elastic Horovod with real kills: the others continue from the last commit, with a record like our methods'.

That no process is left is asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, UsageError, launch
from farandole.data.sampler import batch_size, steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.recovery.event_log import EventLog
from farandole.runtime.chaos import Chaos

pytestmark = pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: make setup builds it")

STEPS = 60
TRAINING_SET, BATCH = 1437, 64  # of the digits; the default
TIMEOUT_S = 180  # for what takes 10 seconds on an idle machine


def assert_complete(run: Run, members: list[int], at_first: int, steps: int = STEPS) -> None:
    """Check the last members, their equal parameters, and that each step is recorded once, with its whole batch."""
    summary = run.summary
    assert (summary.ranks, summary.members, summary.steps) == (len(members), members, steps)
    assert len(set(summary.params_sha256 or [])) == 1
    assert summary.bytes_sent is None, "Horovod's own to know"
    assert all(seconds > 0 for seconds in summary.compute_s + summary.comm_s)
    shares, epoch = equal_shares(TRAINING_SET, at_first), steps_per_epoch(TRAINING_SET, BATCH)
    whole = [sum(batch_size(share, epoch, step) for share in shares) for step in range(steps)]
    assert [(line["step"], line["samples"]) for line in run.metrics] == list(enumerate(whole))
    walls = [line["wall_s"] for line in run.metrics]
    assert walls == sorted(walls)
    for fault in summary.faults:
        assert fault["kind"] == "ended" or 0 <= fault["detected_s"] < fault["resumed_s"]
    assert sorted(file.name for file in run.folder.iterdir()) == [
        "config.json", "logbook.jsonl", "metrics.jsonl", "shards", "summary.json", "trace.json",
    ]  # fmt: skip


def struck(run: Run) -> list[tuple[int, int, str, int]]:
    """Return the record's faults without their times: rank, step, kind, steps lost."""
    return [(fault["rank"], fault["step"], fault["kind"], fault["steps_lost"]) for fault in run.summary.faults]


def horovod(workers: int, folder: Path, **options: Any) -> Run:
    return launch("elastic_horovod", workers, timeout_s=TIMEOUT_S, out=folder / "run", **{"steps": STEPS} | options)


def test_survivors_continue_from_the_last_commit(tmp_path: Path) -> None:
    """First a worker dies, then rank 0, which writes the record; each step is that of `membership`, but for dropout."""
    fails = ["rank=1,step=23", "rank=0,step=43"]
    run = horovod(3, tmp_path, fail=fails, dropout=0.0, gloo_timeout=10)
    assert_complete(run, [2], at_first=3)
    assert struck(run) == [(1, 23, "kill", 3), (0, 43, "kill", 3)]

    ours = launch("membership", 3, steps=STEPS, fail=fails, dropout=0.0, out=tmp_path / "ours")
    assert ours.summary.members == [2]
    lost = {*range(20, 23), *range(40, 43)}  # here `membership` lacks the dead rank's part of the loss
    for its, line in zip(run.metrics, ours.metrics, strict=True):
        if its["step"] not in lost:
            assert its["loss"] == pytest.approx(line["loss"], rel=5e-3), its["step"]
    assert run.summary.test_accuracy == pytest.approx(ours.summary.test_accuracy, abs=0.02)


@pytest.mark.soak  # in `make test` a worker comes late under Slurm: tests/slurm/test_elastic_horovod_script.py
def test_a_new_worker_starts_after_the_cooldown(tmp_path: Path) -> None:
    """Training is slow enough that the worker joins before the end; it has a new number."""
    slow = {"slow": "rank=0,factor=200", "wait_timeout": 150}  # a busy machine's delays are multiplied, too
    run = horovod(2, tmp_path, fail="rank=1,step=12", cooldown=1, **slow)
    assert_complete(run, [0, 2], at_first=2)
    assert struck(run) == [(1, 12, "kill", 2)], "the newcomer's arrival is no failure"


def test_a_host_with_a_failed_worker_is_not_used_again(tmp_path: Path) -> None:
    """The blacklist's trap: all workers are on one host for Horovod."""
    (tmp_path / "hosts").write_text("localhost:2\n")
    with pytest.raises(LaunchError, match=r"ended the workers that were left \(0\): it takes no host again where one"):
        horovod(2, tmp_path, fail="rank=1,step=12", hosts_file=tmp_path / "hosts")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_failed_worker_ends_all_workers_of_its_host(tmp_path: Path) -> None:
    """Of three workers two are on one host; rank 1 is one of them, whichever host comes first."""
    (tmp_path / "hosts").write_text("localhost:2\n127.0.0.1:1\n")
    run = horovod(3, tmp_path, fail="rank=1,step=12", hosts_file=tmp_path / "hosts", gloo_timeout=10)
    [left] = run.summary.members
    assert_complete(run, [left], at_first=3)
    kinds = {fault["rank"]: fault["kind"] for fault in run.summary.faults}
    assert kinds == {1: "kill", 2 - left: "ended"}


@pytest.mark.soak  # Horovod's threads compute all the time while they wait
def test_a_worker_that_hangs_ends_the_job_in_time(tmp_path: Path) -> None:
    """Horovod does not detect a hang: the waiting ranks do, by their time-out."""
    with pytest.raises(LaunchError, match="has waited for the others longer than --wait-timeout 12"):
        horovod(2, tmp_path, fail="rank=1,step=12,how=hang", wait_timeout=12, gloo_timeout=10)
    assert EventLog(tmp_path / "run" / "logbook.jsonl").struck() == {(1, 12)}, "it was the hang that they waited for"


def test_a_worker_that_cannot_be_started_has_failed(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    """The driver waits until no worker is alive: one that never started must not count as alive."""
    assert under_mpirun("lost_host.py", 1, str(tmp_path)) == {"status": 1, "living": 0, "failed": [0]}


def test_one_worker_alone_trains_likewise(tmp_path: Path) -> None:
    run = horovod(1, tmp_path)
    assert_complete(run, [0], at_first=1)
    assert struck(run) == []


def test_the_number_of_workers_is_given_by_n(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="elastic_horovod starts as many workers as are asked for by -n"):
        launch("elastic_horovod", 2, workers=3, out=tmp_path / "run")


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--min-workers 3: there are 2; give as many or fewer"):
        horovod(2, tmp_path, min_workers=3)
    assert not (tmp_path / "run").exists()


def test_a_refused_run_leaves_no_record_and_its_folder_is_free(tmp_path: Path) -> None:
    """As late as that: the batch when the data are there, the host when its address is looked up."""
    (tmp_path / "hosts").write_text("nowhere.invalid:2\n")
    with pytest.raises(UsageError, match="--batch 1: 4 ranks share the samples"):
        launch("elastic_horovod", 4, batch=1, steps=500, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"host nowhere\.invalid has no address"):
        horovod(2, tmp_path, hosts_file=tmp_path / "hosts")
    assert not (tmp_path / "run").exists()


RANDOM = [(2 + seed % 2, Chaos((1.0, 3.0)[seed % 2], seed)) for seed in range(6)]


@pytest.mark.soak
@pytest.mark.parametrize(("workers", "chaos"), RANDOM, ids=str)
def test_survivors_continue_under_random_kills(workers: int, chaos: Chaos, tmp_path: Path) -> None:
    said, output, run = "", "", None
    try:
        run = horovod(workers, tmp_path, steps=600, chaos=chaos, gloo_timeout=10)
    except LaunchError as failure:
        said, output = failure.message, failure.output
    killed = {line.rank for line in EventLog(tmp_path / "run" / "logbook.jsonl").lines() if line.kind == "kill"}
    if run is None:
        assert re.search(r"all workers have failed \([\d, ]+\)", said), said
        if not ("terminate called" in output and "Wait timeout after 10 seconds" in output):
            assert killed == set(range(workers)), "nor has Horovod ended who waited for one of these (docs/recovery.md)"
        return
    assert_complete(run, sorted(set(range(workers)) - killed), at_first=workers, steps=600)
    assert {fault["rank"] for fault in run.summary.faults} == killed
