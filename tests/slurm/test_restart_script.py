"""restart.sbatch: a stopped job saves its state, is queued again, and ends as an undisturbed one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from farandole.recovery.event_log import EventLog
from farandole.recovery.events import Line
from farandole.runtime.record import Run
from farandole_tools.slurm.sandbox import Sandbox, SandboxError
from tests.slurm.jobs import PATIENCE, like_a_checkout, run_it, wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "restart.sbatch"
STEPS = 100
RECIPE = ("--steps", str(STEPS), "--checkpoint-every", "10")
UNHURRIED = ("--slow", "rank=0,factor=30")  # long enough to be stopped during training, short enough to wait for
# Two nodes with a rank each: the number of ranks does not matter for a stop, and each start of a rank imports torch
# for over a second. Four ranks are in test_scripts.py.
RANKS = 2


def submit(cluster: Sandbox, checkout: Path, *arguments: str, options: Sequence[str] = ()) -> int:
    """Submit the script with `RANKS` ranks; return the job's number."""
    return cluster.submit(SCRIPT, "--ntasks-per-node=1", *options, arguments=arguments, cwd=checkout)


def lines(folder: Path, what: str) -> list[Line]:
    return [line for line in EventLog(folder / "logbook.jsonl").lines() if line.what == what]


def finished(cluster: Sandbox, number: int, folder: Path) -> Run:
    result = cluster.wait(number, timeout=PATIENCE)
    assert result.state == "COMPLETED", result.output.read_text()
    return Run.open(folder)


def last_node(cluster: Sandbox, number: int) -> str:
    """Return the last of the job's nodes."""
    nodes = cluster.run("squeue", "--noheader", "--format=%N", f"--jobs={number}").strip()
    return cluster.run("scontrol", "show", "hostnames", nodes).split()[-1]


def state_of(cluster: Sandbox, node: str) -> set[str]:
    """Return one word for each partition that the node is in."""
    return set(cluster.run("sinfo", "--noheader", f"--nodes={node}", "--Node", "--format=%T").split())


def bring_back(cluster: Sandbox, node: str) -> None:
    """Wait until a node that went down is idle: it returns, or is resumed, as in any cluster.

    One that registers while its job's last processes end has been seen to stay "mixed" with no job on it
    (Slurm 22.05, twice in some thirty times); the way out is an administrator's, down and up again.
    """

    def set_to(state: str) -> None:
        with suppress(SandboxError):  # it has changed meanwhile
            cluster.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=test")

    def is_idle() -> bool:
        states = state_of(cluster, node)
        jobs = cluster.run("squeue", "--noheader", f"--nodelist={node}").splitlines()
        print(f"{node} is {', '.join(states)}; jobs: {jobs}")  # shown if it never is
        if any(state.startswith("down") for state in states):
            set_to("RESUME")
        elif states & {"mixed", "allocated"} and not jobs:
            set_to("DOWN")
        return states == {"idle"}

    wait_for(is_idle, f"idle {node}")


@pytest.fixture(scope="module")
def digest(cluster: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the parameters of an undisturbed job with as many threads per rank, which decide how sums are rounded."""
    checkout = like_a_checkout(tmp_path_factory.mktemp("whole"))
    number = submit(cluster, checkout, "--steps", str(STEPS), "--checkpoint-every", str(STEPS))
    run = finished(cluster, number, checkout / "runs" / f"restart-{number}")
    return (run.summary.params_sha256 or [])[0]


@pytest.mark.cold
def test_before_its_time_limit_it_saves_itself_and_goes_on(cluster: Sandbox, checkout: Path) -> None:
    """Slurm itself sends the signal, half a minute after the limit is set at the latest."""
    submitted = time.monotonic()
    number = submit(cluster, checkout, "--steps", "1000000", "--checkpoint-every", "0", *UNHURRIED)
    folder = checkout / "runs" / f"restart-{number}"
    try:
        wait_for(lambda: bool(lines(folder, "first step")), "first step")  # before, no rank would know the signal
        limit = 1 + round((time.monotonic() - submitted) / 60)
        cluster.run("scontrol", "update", f"JobId={number}", f"TimeLimit={limit}")
        wait_for(lambda: bool(lines(folder, "stop")), "stop")
        cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=10")
        wait_for(lambda: len(lines(folder, "first step")) == 2, "second start")
    finally:
        cluster.run("scancel", str(number))  # it would run for hours
    assert cluster.wait(number, timeout=PATIENCE).state == "CANCELLED"
    assert 0 < lines(folder, "checkpoint")[0].step == lines(folder, "stop")[0].step == lines(folder, "start")[1].step
    assert "stopped as asked, saved before step" in (checkout / f"restart-{number}.out").read_text()


def test_a_killed_rank_makes_it_start_again(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = submit(cluster, checkout, *RECIPE, "--fail", "rank=1,step=47")
    run = finished(cluster, number, checkout / "runs" / f"restart-{number}")
    assert run.summary.params_sha256 == [digest] * RANKS
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in run.summary.faults] == [(1, 47, "kill")]


def test_a_job_that_takes_its_nodes_costs_it_nothing(cluster: Sandbox, checkout: Path, digest: str) -> None:
    """The job saves its state in the GraceTime: no checkpoint is made before that."""
    recipe = ("--steps", str(STEPS), "--checkpoint-every", str(STEPS))
    number = submit(cluster, checkout, *recipe, *UNHURRIED, options=["--exclusive"])
    folder = checkout / "runs" / f"restart-{number}"
    wait_for(lambda: bool(lines(folder, "first step")), "first step")
    cluster.run("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--wrap=sleep 1", cwd=checkout)
    wait_for(lambda: len(lines(folder, "start")) == 2, "second start")
    run = finished(cluster, number, folder)
    assert run.summary.params_sha256 == [digest] * RANKS
    [stop] = lines(folder, "stop")
    assert 0 < lines(folder, "start")[1].step == stop.step
    assert run.summary.faults == []


def test_cancelled_it_does_not_come_back(cluster: Sandbox, checkout: Path) -> None:
    number = submit(cluster, checkout, *RECIPE, *UNHURRIED)
    folder = checkout / "runs" / f"restart-{number}"
    wait_for(lambda: bool(lines(folder, "first step")), "first step")
    cluster.run("scancel", str(number))
    assert cluster.wait(number, timeout=PATIENCE).state == "CANCELLED"
    assert len(lines(folder, "start")) == 1


@pytest.mark.parametrize(("stops", "goes_on"), [(2, False), (3, True), (7, True)])
def test_only_failures_are_counted(stops: int, goes_on: bool, tmp_path: Path) -> None:
    """At its eighth start the job fails; each line in the log stands for a start that its time limit stopped."""
    (tmp_path / "reference" / "farandole").mkdir(parents=True)
    for name, text in (("mpirun", "exit 1"), ("scontrol", 'echo scontrol "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    event_log = EventLog(tmp_path / "runs" / "restart-7" / "logbook.jsonl")
    event_log.file.parent.mkdir(parents=True)
    for step in range(stops):
        event_log.write("start", 0, step)
        event_log.write("stop", 0, step + 1)
    done = run_it(SCRIPT, tmp_path, SLURM_RESTART_COUNT="7")
    assert (done.returncode, done.stdout) == ((0, "scontrol requeue 7\n") if goes_on else (1, "")), done.stderr


def test_a_node_that_is_drained_keeps_its_job_and_gets_no_other(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = submit(cluster, checkout, *RECIPE, "--slow", "rank=0,factor=10")
    folder = checkout / "runs" / f"restart-{number}"
    wait_for(lambda: bool(lines(folder, "first step")), "first step")
    last = last_node(cluster, number)
    cluster.run("scontrol", "update", f"NodeName={last}", "State=DRAIN", "Reason=test")
    try:
        other = cluster.run("sbatch", "--parsable", f"--nodelist={last}", "--wrap=true", cwd=checkout).strip()
        run = finished(cluster, number, folder)
        wait_for(lambda: state_of(cluster, last) == {"drained"}, f"drained {last}")
        shown = cluster.run("scontrol", "show", "job", other)
    finally:
        cluster.run("scontrol", "update", f"NodeName={last}", "State=RESUME")
    assert run.summary.params_sha256 == [digest] * RANKS
    assert len(lines(folder, "start")) == 1, "it was not disturbed"
    assert "JobState=PENDING" in shown
    assert cluster.wait(other, timeout=PATIENCE).state == "COMPLETED"


def test_a_node_that_goes_down_is_replaced(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = submit(cluster, checkout, *RECIPE, *UNHURRIED)
    folder = checkout / "runs" / f"restart-{number}"
    # A thread writes it: when the second one begins, the first is on the disk.
    wait_for(lambda: len(lines(folder, "checkpoint")) >= 2, "second checkpoint")
    last = last_node(cluster, number)
    cluster.run("scontrol", "update", f"NodeName={last}", "State=DOWN", "Reason=test")
    wait_for(lambda: len(lines(folder, "start")) == 2, "second start")
    run = finished(cluster, number, folder)
    bring_back(cluster, last)
    assert run.summary.params_sha256 == [digest] * RANKS
    assert lines(folder, "start")[1].step > 0


def test_what_does_not_fit_is_not_tried_again(cluster: Sandbox, checkout: Path) -> None:
    number = submit(cluster, checkout, "--lr", "-1")
    result = cluster.wait(number, timeout=PATIENCE)
    assert (result.state, result.exit_code) == ("FAILED", 2)
    assert result.output.read_text().count("--lr") == 1
