"""Launching: output, failures, time-outs, interrupts, and nothing left behind.

That no process is left is asserted after every test, by a fixture in tests/conftest.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from farandole import launching
from farandole.errors import LaunchError, UsageError
from farandole.launching import launch
from farandole.runtime import mpirun, processes
from farandole.runtime.launcher import Output, run_ranks
from tests.children import heeds_signals
from tests.conftest import SESSION

SPEAK = str(Path(__file__).parent / "programs" / "speak.py")
PATIENCE_S = 120
FARANDOLE = [sys.executable, "-m", "farandole"]


def lines(rank: int) -> str:
    return "".join(f"rank {rank} {word} {'x' * 3000}\n" for word in ("first", "second"))


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_output_is_whole_and_in_rank_order(ranks: int) -> None:
    assert run_ranks([SPEAK], ranks).stdout == [lines(rank) for rank in range(ranks)]


def test_the_failing_ranks_traceback_comes_first() -> None:
    start = time.monotonic()
    with pytest.raises(LaunchError) as failed:
        run_ranks([SPEAK, "raise"], 3, timeout_s=300)
    assert time.monotonic() - start < 300, "one rank's end must end all"
    message = failed.value.message.splitlines()
    assert message[0] == "rank 2 raised ZeroDivisionError: on purpose"
    assert "speak.py" in message[2], "the traceback begins in the user's program"
    assert failed.value.returncode == 1
    assert lines(2) in failed.value.output


def test_a_rank_that_exits_early_is_a_failure() -> None:
    with pytest.raises(LaunchError, match="I have had enough"):
        run_ranks([SPEAK, "exit"], 2)


def test_a_time_out_ends_everything() -> None:
    start = time.monotonic()
    with pytest.raises(LaunchError, match="ended after 3 s") as failed:
        run_ranks([SPEAK, "sleep"], 2, timeout_s=3)
    assert failed.value.returncode == 124
    assert time.monotonic() - start < 600, "which they would have slept"


def test_a_launch_inside_a_launch_works() -> None:
    assert "inner: 0 1" in run_ranks([SPEAK, "nested"], 2).stdout[0]


def test_child_processes_of_a_rank_are_ended() -> None:
    run_ranks([SPEAK, "child"], 2)
    left = processes.find(SESSION, os.environ[SESSION])
    assert "sleep" not in [process.name() for process in left]


@pytest.mark.parametrize("ranks", [0, -3])
def test_impossible_numbers_of_ranks_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match="1 or more"):
        run_ranks([SPEAK], ranks)


def test_options_are_checked_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UsageError, match="stepz"):
        launch("sync_sgd", 2, stepz=3)


def test_bad_input_that_the_ranks_refuse_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--batch 9999: must be from 1 to the 1437 training samples$"):
        launch("sync_sgd", 2, batch=9999, out=tmp_path)
    assert not list(tmp_path.iterdir()), "the folder was there before, and is as it was"


def test_a_missing_record_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ULFM the other ranks may have finished their work."""
    monkeypatch.setattr(launching, "run_ranks", lambda *_, **__: Output(["", ""], ["", ""]))
    with pytest.raises(LaunchError, match="the rank that writes the record died before it did"):
        launch("parameter_server", 3, out=tmp_path / "run")


def interrupted(folder: Path, *stops: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Run the command line and send it these signals, one right after another, while its ranks train."""
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [*FARANDOLE, "run", "sync_sgd", "-n", "3", "--steps", "1000000"]
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"TMPDIR": str(temporary)},
        preexec_fn=heeds_signals,
    )
    try:
        until(lambda: any(file.stat().st_size for file in folder.glob("runs/*/metrics.jsonl")))
        for stop in stops:
            job.send_signal(stop)
            time.sleep(0.05)
        out, err = job.communicate(timeout=PATIENCE_S)
    finally:
        job.kill()
    until(lambda: not list(temporary.iterdir()))
    return subprocess.CompletedProcess(command, job.returncode, out, err)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_launch_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ours nor mpirun's, which is killed here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(LaunchError):
        run_ranks([SPEAK, "raise"], 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stops", "line"),
    [
        ([signal.SIGINT] * 3, "farandole: interrupted; every rank has been ended"),
        ([signal.SIGTERM, signal.SIGINT], "farandole: ended by SIGTERM; every rank has been ended"),
    ],
)
def test_a_signal_takes_every_rank_down(stops: list[signal.Signals], line: str, tmp_path: Path) -> None:
    """However often the signal comes, and with all temporary files."""
    done = interrupted(tmp_path, *stops)
    assert (done.returncode, done.stderr) == (128 + stops[0], f"{line}\n")


def test_a_killed_launcher_leaves_neither_rank_nor_file(tmp_path: Path) -> None:
    interrupted(tmp_path, signal.SIGKILL)
    until(lambda: not processes.find(SESSION, os.environ[SESSION]))


def test_a_suspended_run_continues(tmp_path: Path) -> None:
    """Ctrl-Z and fg. The system stops no process whose group has no parent in its session, so it gets a group here."""
    command = [*FARANDOLE, "run", "sync_sgd", "-n", "2", "--steps", "200", "--json", "--out", str(tmp_path / "run")]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    until(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    job.send_signal(signal.SIGTSTP)
    until(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)
    job.send_signal(signal.SIGCONT)
    out, _ = job.communicate(timeout=PATIENCE_S)
    assert (job.returncode, json.loads(out)["steps"]) == (0, 200)


def plain_mpirun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The scenario as on a cluster: under mpirun, without our launcher."""
    mpi = mpirun.detect()
    command = [str(mpi.mpirun), "--oversubscribe", "-n", str(ranks), sys.executable, "-m",
               "farandole.scenarios.sync_sgd", *arguments]  # fmt: skip
    return subprocess.run(command, env=mpi.environment(os.environ), capture_output=True, text=True, timeout=120)


def test_a_scenario_runs_under_plain_mpirun(tmp_path: Path) -> None:
    done = plain_mpirun(2, "--steps", "20", "--json", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2


def test_a_failing_rank_ends_a_plain_mpirun(tmp_path: Path) -> None:
    done = plain_mpirun(2, "--fail", "rank=1,step=3,how=raise", "--out", str(tmp_path / "run"))
    assert done.returncode != 0
    assert "rank 1 at step 3 raised farandole.runtime.faults.InjectedFault" in done.stderr


def test_a_world_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    done = plain_mpirun(1, "--expect-ranks", "4", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "this job has 1 rank(s), not the 4 expected" in done.stderr
