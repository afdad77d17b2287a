"""restart.sbatch: what stops it makes it save itself, be queued again, and end as if nothing had happened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from farandole.recovery.logbook import Line, Logbook
from farandole.runtime.record import Run
from farandole.slurm.sandbox import Sandbox, SandboxError
from tests.slurm.jobs import PATIENCE, wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "restart.sbatch"
STEPS = 100
RECIPE = ("--steps", str(STEPS), "--checkpoint-every", "10")
UNHURRIED = ("--slow", "rank=0,factor=30")  # long enough to be stopped on the way, not long enough to be waited for


def lines(folder: Path, what: str) -> list[Line]:
    return [line for line in Logbook(folder / "logbook.jsonl").lines() if line.what == what]


def finished(cluster: Sandbox, number: int, folder: Path) -> Run:
    result = cluster.wait(number, timeout=PATIENCE)
    assert result.state == "COMPLETED", result.output.read_text()
    return Run.open(folder)


def last_node(cluster: Sandbox, number: int) -> str:
    """Of those that the job has."""
    nodes = cluster.run("squeue", "--noheader", "--format=%N", f"--jobs={number}").strip()
    return cluster.run("scontrol", "show", "hostnames", nodes).split()[-1]


def state_of(cluster: Sandbox, node: str) -> set[str]:
    """One word for each partition that it is in."""
    return set(cluster.run("sinfo", "--noheader", f"--nodes={node}", "--Node", "--format=%T").split())


def bring_back(cluster: Sandbox, node: str) -> None:
    """Wait until a node that went down is idle: it comes back by itself, or is told to, as in any cluster.

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
    """The parameters of a run that nobody stops."""
    from farandole import launch

    run = launch("restart", ranks=4, out=tmp_path_factory.mktemp("whole") / "run", steps=STEPS)
    return (run.summary.params_sha256 or [])[0]


def test_before_its_time_limit_it_saves_itself_and_goes_on(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = cluster.submit(SCRIPT, arguments=[*RECIPE, *UNHURRIED], cwd=checkout)
    folder = checkout / "runs" / f"restart-{number}"
    wait_for(lambda: bool(lines(folder, "first step")), "first step")
    cluster.run("scancel", "--batch", "--signal=USR1", str(number))  # as Slurm does a minute before the limit
    wait_for(lambda: len(lines(folder, "start")) == 2, "second start")
    run = finished(cluster, number, folder)
    assert run.summary.params_sha256 == [digest] * 4
    assert 0 < lines(folder, "start")[1].step < STEPS
    assert run.summary.faults == [], "a stop that was asked for is no fault"
    assert "stopped as asked, saved before step" in (checkout / f"restart-{number}.out").read_text()


def test_a_killed_rank_makes_it_start_again(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = cluster.submit(SCRIPT, arguments=[*RECIPE, "--fail", "rank=2,step=47"], cwd=checkout)
    run = finished(cluster, number, checkout / "runs" / f"restart-{number}")
    assert run.summary.params_sha256 == [digest] * 4
    assert [(fault["rank"], fault["step"], fault["kind"]) for fault in run.summary.faults] == [(2, 47, "kill")]


def test_a_job_that_takes_its_nodes_costs_it_nothing(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = cluster.submit(SCRIPT, "--exclusive", arguments=[*RECIPE, *UNHURRIED], cwd=checkout)
    folder = checkout / "runs" / f"restart-{number}"
    wait_for(lambda: len(lines(folder, "checkpoint")) >= 2, "second checkpoint")
    cluster.run("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--wrap=sleep 1", cwd=checkout)
    wait_for(lambda: len(lines(folder, "start")) == 2, "second start")
    run = finished(cluster, number, folder)
    assert run.summary.params_sha256 == [digest] * 4
    assert lines(folder, "start")[1].step > 0


def test_a_node_that_is_drained_keeps_its_job_and_gets_no_other(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = cluster.submit(SCRIPT, arguments=[*RECIPE, "--slow", "rank=0,factor=10"], cwd=checkout)
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
    assert run.summary.params_sha256 == [digest] * 4
    assert len(lines(folder, "start")) == 1, "it was not disturbed"
    assert "JobState=PENDING" in shown
    assert cluster.wait(other, timeout=PATIENCE).state == "COMPLETED"


def test_a_node_that_goes_down_is_replaced(cluster: Sandbox, checkout: Path, digest: str) -> None:
    number = cluster.submit(SCRIPT, arguments=[*RECIPE, *UNHURRIED], cwd=checkout)
    folder = checkout / "runs" / f"restart-{number}"
    # It is written in the background: when the second one begins, the first is on the disk.
    wait_for(lambda: len(lines(folder, "checkpoint")) >= 2, "second checkpoint")
    last = last_node(cluster, number)
    cluster.run("scontrol", "update", f"NodeName={last}", "State=DOWN", "Reason=test")
    wait_for(lambda: len(lines(folder, "start")) == 2, "second start")
    run = finished(cluster, number, folder)
    bring_back(cluster, last)
    assert run.summary.params_sha256 == [digest] * 4
    assert lines(folder, "start")[1].step > 0


def test_what_does_not_fit_is_not_tried_again(cluster: Sandbox, checkout: Path) -> None:
    number = cluster.submit(SCRIPT, arguments=["--lr", "-1"], cwd=checkout)
    result = cluster.wait(number, timeout=PATIENCE)
    assert (result.state, result.exit_code) == ("FAILED", 2)
    assert result.output.read_text().count("--lr") == 1
