"""The one-machine Slurm: it comes up, runs jobs over its nodes as a cluster does, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from farandole.errors import UsageError
from farandole_tools.slurm import layout, sandbox
from farandole_tools.slurm.processes import MARK, processes
from farandole_tools.slurm.sandbox import JobResult, Sandbox, SandboxError

WHERE_AM_I = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
os.write(1, f"{world.rank} of {world.size} on {os.environ['SLURMD_NODENAME']}\\n".encode())
"""
ON_TWO_NODES = ("--nodes=2", "--ntasks-per-node=2")


def run_job(cluster: Sandbox, folder: Path, commands: str, *options: str) -> tuple[JobResult, list[str]]:
    """Submit the commands as a batch script; return how it ended, and the lines that it printed."""
    script = folder / "job.sh"
    path = f"{Path(sys.executable).parent}:$PATH"
    script.write_text(f'#!/bin/bash\nset -euo pipefail\nexport PATH="{path}"\n{commands}\n')
    result = cluster.wait(cluster.submit(script, f"--output={folder}/job.out", *options, cwd=folder), timeout=60)
    return result, result.output.read_text().splitlines()


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def farandole(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "farandole", "slurm", *words], capture_output=True, text=True, timeout=60, check=False
    )


# --- running jobs ------------------------------------------------------------------------------------------


def test_all_nodes_are_idle(cluster: Sandbox) -> None:
    now = sandbox.status(cluster.folder)
    assert now.up
    assert now.nodes == dict.fromkeys(["n1", "n2", "n3", "n4"], "idle")
    assert list(now.daemons) == ["munged", "slurmctld", "n1", "n2", "n3", "n4"]
    assert all(pid and alive(pid) for pid in now.daemons.values())
    assert len(set(now.daemons.values())) == 6


def test_the_daemons_listen_on_loopback(cluster: Sandbox) -> None:
    listening = [
        connection.laddr
        for process in processes(cluster.folder)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len({address.port for address in listening}) == 5  # the controller and four nodes
    assert {address.ip for address in listening} == {"127.0.0.1" if layout.loopback_only() else "0.0.0.0"}


@pytest.mark.parametrize("launcher", ["mpirun --bind-to none", "srun --mpi=pmix"])
def test_one_mpi_program_over_two_nodes(launcher: str, cluster: Sandbox, pmix: None, tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text(WHERE_AM_I)
    result, lines = run_job(cluster, tmp_path, f'{launcher} -n "$SLURM_NTASKS" python where.py', *ON_TWO_NODES)
    assert result.state == "COMPLETED", lines
    assert sorted(lines) == ["0 of 4 on n1", "1 of 4 on n1", "2 of 4 on n2", "3 of 4 on n2"]


def test_srun_gives_each_task_a_gpu_of_its_own(cluster: Sandbox, tmp_path: Path) -> None:
    _, lines = run_job(cluster, tmp_path, "srun printenv CUDA_VISIBLE_DEVICES", *ON_TWO_NODES, "--gpus-per-task=1")
    assert Counter(lines) == {"0": 2, "1": 2}


@pytest.mark.parametrize(("request_", "seen"), [("--gpus-per-node=2", "0,1"), ("--gpus-per-task=1", "0")])
def test_mpirun_sees_all_gpus_only_if_they_are_asked_for_per_node(
    request_: str, seen: str, cluster: Sandbox, tmp_path: Path
) -> None:
    """Why the scripts say --gpus-per-node."""
    # A program that ends within milliseconds sometimes leaves Open MPI's mpirun waiting for ever.
    program = "sh -c 'sleep 0.5; printenv CUDA_VISIBLE_DEVICES'"
    commands = f'mpirun --bind-to none -n "$SLURM_NTASKS" {program}'
    _, lines = run_job(cluster, tmp_path, commands, *ON_TWO_NODES, request_)
    assert lines == [seen] * 4


def test_a_node_has_its_own_scratch(cluster: Sandbox, tmp_path: Path) -> None:
    _, lines = run_job(cluster, tmp_path, "srun printenv TMPDIR", "--nodes=2")
    assert sorted(lines) == [f"{cluster.folder}/tmp/n1", f"{cluster.folder}/tmp/n2"]


@pytest.mark.parametrize(("commands", "exit_code"), [("echo so far; exit 3", 3), ("echo so far; kill -KILL $$", 137)])
def test_how_a_job_failed_is_reported(commands: str, exit_code: int, cluster: Sandbox, tmp_path: Path) -> None:
    result, lines = run_job(cluster, tmp_path, commands)
    assert (result.state, result.exit_code) == ("FAILED", exit_code)
    assert lines == ["so far"]


def test_waiting_ends_with_the_reason(cluster: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\nsleep 100\n")
    job = cluster.submit(tmp_path / "job.sh", f"--output={tmp_path}/%j.out", "--begin=now+1hour")
    with pytest.raises(TimeoutError, match=rf"job {job} is PENDING \(BeginTime\) after 0.5 s"):
        cluster.wait(job, timeout=0.5)
    cluster.run("scancel", str(job))
    assert cluster.wait(job, timeout=10).state == "CANCELLED"


def test_what_sbatch_refuses_is_said(cluster: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    with pytest.raises(SandboxError, match=r"(?s)sbatch .*--nodes=99.*submission failed"):
        cluster.submit(tmp_path / "job.sh", "--nodes=99")


# --- up and down -------------------------------------------------------------------------------------------


def test_up_twice_is_once(cluster: Sandbox) -> None:
    before = sandbox.status(cluster.folder).daemons
    assert sandbox.up(cluster.folder) == cluster
    assert sandbox.status(cluster.folder).daemons == before
    with pytest.raises(UsageError, match="a sandbox of 4 nodes is up in"):
        sandbox.up(cluster.folder, nodes=2)


def test_down_leaves_nothing_and_touches_no_other_sandbox(cluster: Sandbox, folder: Path, tmp_path: Path) -> None:
    others = sandbox.status(cluster.folder).daemons
    own = sandbox.up(folder, nodes=1)
    seconds = f"{1000 + os.getpid()}"  # to be recognised by
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\nsetsid sleep {seconds} &\nsrun sleep {seconds} &\necho; wait; wait\n")
    own.submit(script, f"--output={tmp_path}/job.out", cwd=tmp_path)

    def sleepers() -> list[int]:
        lines = {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}
        return [pid for pid, line in lines.items() if line[1:] == [seconds] and Path(line[0]).name == "sleep"]

    deadline = time.monotonic() + 120
    while len(sleepers()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(sleepers()) == 2
    everything = [process.pid for process in processes(folder)]
    assert len(everything) > 6  # three daemons, slurmscriptd, slurmstepd, the script and what it started

    assert sandbox.down(folder)

    assert not sleepers()
    assert [pid for pid in everything if alive(pid)] == []
    assert not folder.exists()
    assert sandbox.status(cluster.folder).daemons == others
    assert not sandbox.down(folder)  # nothing is left


def test_up_clears_away_what_a_killed_session_left(folder: Path) -> None:
    sandbox.up(folder, nodes=1)
    before = sandbox.status(folder).daemons
    for name in ("munged", "slurmctld"):
        os.kill(before[name] or 0, signal.SIGKILL)
    assert not sandbox.status(folder).up

    own = sandbox.up(folder, nodes=2)

    assert not alive(before["n1"] or 0)
    assert sandbox.status(folder).nodes == {"n1": "idle", "n2": "idle"}
    assert sorted(own.run("srun", "--nodes=2", "printenv", "SLURMD_NODENAME").split()) == ["n1", "n2"]


def test_a_start_that_fails_says_why_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(layout.TEMPLATES, templates)
    with (templates / "slurm.conf").open("a") as conf:
        conf.write("SchedulerType=sched/nonsense\n")
    monkeypatch.setattr(layout, "TEMPLATES", templates)
    with pytest.raises(SandboxError, match=r"(?s)slurmctld.*sched/nonsense"):
        sandbox.up(folder, nodes=1)
    assert processes(folder) == []
    assert not folder.exists()


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, -1, 65])
def test_an_impossible_number_of_nodes_is_refused(nodes: int, folder: Path) -> None:
    with pytest.raises(UsageError, match=f"--nodes {nodes}: a sandbox has 1 to 64 nodes"):
        sandbox.up(folder, nodes=nodes)


def test_a_folder_with_other_things_in_it_is_left_alone(folder: Path) -> None:
    (folder / "thesis.tex").write_text("all I have")
    with pytest.raises(UsageError, match="holds files that are not a sandbox's"):
        sandbox.up(folder)
    assert not sandbox.down(folder)
    assert (folder / "thesis.tex").read_text() == "all I have"


def test_a_folder_that_slurm_could_not_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Slurm's sockets allow 60"):
        sandbox.up(tmp_path / ("x" * 60))
    with pytest.raises(UsageError, match="cannot hold a path with blanks"):
        sandbox.up(Path("/tmp/with blank"))


def test_without_slurm_the_line_that_installs_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PATH", str(folder))
    with pytest.raises(UsageError, match=r"no munged, slurmctld,.*apt-get install.* slurm-wlm"):
        sandbox.up(folder)


def test_a_job_cannot_end_its_own_sandbox(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(cluster.folder))
    with pytest.raises(UsageError, match="a job of the sandbox itself"):
        sandbox.down(cluster.folder)


# --- the command line --------------------------------------------------------------------------------------


def test_the_three_commands(folder: Path) -> None:
    up = farandole("up", "--nodes", "1", "--dir", str(folder))
    assert up.returncode == 0, up.stderr
    assert f"export SLURM_CONF={folder}/slurm.conf" in up.stdout

    shown = json.loads(farandole("status", "--json", "--dir", str(folder)).stdout)
    assert (shown["up"], shown["nodes"], shown["jobs"]) == (True, {"n1": "idle"}, 0)
    assert "slurmd n1" in farandole("status", "--dir", str(folder)).stdout
    assert farandole("up", "--nodes", "1", "--dir", str(folder)).stdout.startswith("Already up")

    assert farandole("down", "--dir", str(folder)).returncode == 0
    assert json.loads(farandole("status", "--json", "--dir", str(folder)).stdout)["up"] is False


def test_bad_input_is_one_line_and_exit_code_2(folder: Path) -> None:
    wrong = farandole("up", "--nodes", "0", "--dir", str(folder))
    assert wrong.returncode == 2
    assert len(wrong.stderr.strip().splitlines()) == 1
    assert "--nodes. Must be >= 1" in wrong.stderr
