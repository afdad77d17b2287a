"""``farandole bench recovery``: from the kill of a rank to the first useful step after it, and what protection costs.

One rank of a small data-parallel training is killed by SIGKILL, again and again; each time counts from
just before the signal to the end of the first step that all remaining ranks have done together.

- a spare takes the slot (`recovery.backup`, and `recovery.membership`), or no process does;
- spawn: a process is started that takes the slot while the others continue; the time counts until the first step that
  the new process works in;
- restart: the job ends, and `farandole supervise` starts it again from the disk;
- Elastic Horovod: the remaining workers return to their last commit in memory, and the dead one's slot stays empty.
  With three or more workers its time-out is part of the time, because a worker that waits for another survivor detects
  nothing before. It is set to 5 seconds here; its default is 30;
- torchrun elastic (torch's own way): its agent ends all ranks and starts them again, and the training
  goes on from a snapshot on disk; DDP on gloo, of the same model.

A peer that fails, or is not installed, has its error in the rows instead.

Further rows are steps without any failure (`recovery_rounds`): with a backup at every step, and with checkpoints,
beside a training that keeps nothing. Ratios below 1 are what that costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from farandole.errors import LaunchError, UsageError
from farandole.launching import launch, supervised_launch
from farandole.recovery.event_log import EventLog
from farandole.runtime import guard, processes, rank
from farandole.runtime.launcher import TIMED_OUT, run_ranks
from farandole.runtime.record import Run, Summary

ROUNDS_PROGRAM = "farandole_tools.bench.recovery_rounds"
TORCHRUN = "farandole_tools.bench.recovery_torchrun"
KILLS = 10  # for each method
ROUNDS = 25  # for each kind of protection
EVERY = 20  # steps between two of them
AT_ONCE = 5  # kills in one launch that has spares
LONG: dict[str, Any] = {"steps": 1000, "slow": "rank=0,factor=20"}  # longer than a process's start; rank 0 sleeps
RECIPE: dict[str, Any] = {"data": "digits", "hidden": 128, "batch": 64, "lr": 0.05}
GLOO_TIMEOUT_S = 5  # Elastic Horovod's; on a busy machine workers start that far from each other
TIMEOUT_S = 300.0

Seconds = list[float]
Peers = dict[str, Seconds | str]  # what each has taken, or why there is nothing


def rows(ranks: int) -> list[dict[str, Any]]:
    """Return a row for each of our methods of recovery, and one for each kind of protection.

    Raises:
        LaunchError: one of the trainings failed.
    """
    ours: dict[str, Seconds] = {}
    with guard.temporary_folder("farandole-bench-") as folder:
        for name, measure in methods(ranks, folder).items():
            ours[name] = measure()
        theirs: Peers = {"restart": ours["restart"]}
        for name, measure in peers(ranks, folder).items():
            theirs[name] = attempted(measure)
        found = [_row(name, state_bytes(RECIPE, 64), ranks, median(seconds), theirs) for name, seconds in ours.items()]
        return found + protection(ranks, folder)


def methods(ranks: int, folder: Path) -> dict[str, Callable[[], Seconds]]:
    """Return our methods of recovery: name → what measures the seconds of each kill."""
    return {
        "spare, backup": lambda: with_spares("backup", ranks, folder),
        "spare, membership": lambda: with_spares("membership", ranks, folder),
        "spawn, membership": lambda: with_joining_processes("membership", ranks, folder),
        "nobody in its place": lambda: without_spares("membership", ranks, folder),
        "restart": lambda: by_restart(ranks, folder),
    }


def peers(ranks: int, folder: Path) -> dict[str, Callable[[], Seconds]]:
    """Return other systems' methods of recovery: name → what measures the seconds of each kill."""
    horovod = f"Elastic Horovod, time-out {GLOO_TIMEOUT_S} s"
    return {
        horovod: lambda: without_spares("elastic_horovod", ranks, folder, gloo_timeout=GLOO_TIMEOUT_S),
        "torchrun elastic": lambda: torchrun(ranks, folder),
    }


def attempted(measure: Callable[[], Seconds]) -> Seconds | str:
    """Return what `measure` returns, or one line that says why it fails."""
    try:
        return measure()
    except (LaunchError, UsageError) as error:
        return str(error).splitlines()[0]


def with_spares(scenario: str, ranks: int, folder: Path, kills: int = KILLS) -> Seconds:
    """A spare for each kill: `AT_ONCE` of them in a launch."""
    seconds: Seconds = []
    while len(seconds) < kills:
        spares = min(AT_ONCE, kills - len(seconds))
        # The victims are workers when their time comes: all but the first at first, and then those that came.
        victims = [1 + number for number in range(spares)]
        fail = [f"rank={victim},step={EVERY * (number + 1)}" for number, victim in enumerate(victims)]
        run = launch(scenario, ranks + spares, **_steps(spares), spares=spares, fail=fail, out=_new(folder))
        seconds += resumed(run)
    return seconds


def without_spares(scenario: str, ranks: int, folder: Path, kills: int = KILLS, **options: Any) -> Seconds:
    """Half of the ranks die in a launch, one after the other; at least one is left."""
    seconds: Seconds = []
    while len(seconds) < kills:
        victims = range(1, 1 + max(1, min(ranks // 2, kills - len(seconds))))
        fail = [f"rank={victim},step={EVERY * victim}" for victim in victims]
        run = launch(scenario, max(2, ranks), **_steps(len(victims)), **options, fail=fail, out=_new(folder))
        seconds += resumed(run)
    return seconds


def with_joining_processes(scenario: str, ranks: int, folder: Path, kills: int = KILLS) -> Seconds:
    """One kill a launch, early; a new process takes the slot.

    Raises:
        LaunchError: no process did.
    """
    seconds: Seconds = []
    while len(seconds) < kills:
        run = launch(scenario, max(2, ranks), **RECIPE, **LONG, spawn=1, fail=f"rank=1,step={EVERY}", out=_new(folder))
        if not run.summary.joined:
            raise LaunchError(f"no process has joined within {run.summary.wall_s:.1f} s")
        lines = EventLog(run.folder / "logbook.jsonl").lines()
        killed, joined = (next(line.when for line in lines if line.what == what) for what in ("failure", "joined"))
        seconds.append(next(line.when for line in lines if line.what == "first step" and line.when > joined) - killed)
    return seconds


def by_restart(ranks: int, folder: Path, kills: int = KILLS) -> Seconds:
    """One training that is killed `kills` times, and started again without a pause each time."""
    fail = [f"rank={ranks - 1},step={EVERY * (number + 1)}" for number in range(kills)]
    run = supervised_launch(
        "restart", ranks, restarts=kills, backoff_s=0.01, announce=lambda _: None, timeout_s=TIMEOUT_S,
        **_steps(kills), checkpoint_every=5, fail=fail, out=_new(folder),
    )  # fmt: skip
    return resumed(run)


def torchrun(ranks: int, folder: Path, kills: int = KILLS) -> Seconds:
    """The same under torch's elastic launcher, each kill in one of its restarts.

    Its agent and the ranks share a store unless told not to, and then gloo finds the addresses of an earlier
    start's ranks in it: most restarts fail, and it tries again (PyTorch's issue 135712). So it is told not to. Should
    a restart fail all the same, that counts as time.

    Raises:
        LaunchError: it failed, or took too long.
    """
    launch_id, files = uuid.uuid4().hex, _new(folder)
    files.mkdir()
    elastic = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    elastic += [f"--max-restarts={2 * kills}", "--monitor-interval=0.1"]
    program = ["-m", TORCHRUN, str(files), str(kills), str(EVERY), json.dumps(RECIPE)]
    command = [sys.executable, *elastic, *program]
    environment = os.environ | {
        rank.LAUNCH: launch_id,
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"torchrun was ended after {TIMEOUT_S:g} s, its time-out", TIMED_OUT) from error
    finally:
        processes.end(processes.find(rank.LAUNCH, launch_id))
    if done.returncode:
        raise LaunchError(f"torchrun ended with {done.returncode}; the last it said:\n{done.stderr[-2000:]}")
    killed, back = (
        [float(line) for line in (files / name).read_text(encoding="utf-8").split()] for name in ("killed", "back")
    )
    return [end - start for start, end in zip(killed, back, strict=True)]


def protection(ranks: int, folder: Path, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """A step with each kind of protection, beside one without any."""
    program = ["-m", ROUNDS_PROGRAM, str(_new(folder)), str(rounds)]
    rows: list[dict[str, Any]] = json.loads(run_ranks(program, ranks).stdout[0])
    return rows


def resumed(run: Run) -> Seconds:
    """From each kill to the first step after it.

    Raises:
        LaunchError: the record does not say.
    """
    summary: Summary = run.summary
    seconds = [fault["resumed_s"] for fault in summary.faults]
    if not seconds or None in seconds:
        raise LaunchError(f"the record of {summary.scenario} does not say when it went on: {summary.faults}")
    return seconds


def state_bytes(recipe: dict[str, Any], inputs: int) -> int:
    """Parameters of the perceptron and, as many numbers again, its momentum, in float32."""
    widths = (inputs, recipe["hidden"], recipe["hidden"], 10)
    numbers: int = sum((before + 1) * after for before, after in pairwise(widths))
    return 2 * 4 * numbers


def _steps(kills: int) -> dict[str, Any]:
    return RECIPE | {"steps": EVERY * (kills + 1)}


def _new(folder: Path) -> Path:
    return folder / uuid.uuid4().hex


def _row(name: str, size: int, ranks: int, ours: float, peers: Peers) -> dict[str, Any]:
    its: dict[str, dict[str, Any]] = {}
    for peer, each in peers.items():
        if isinstance(each, str):
            its[peer] = {"error": each}
        elif peer != name:
            its[peer] = {"median_s": median(each), "ratio": median(each) / ours}
    return {"name": name, "size": size, "ranks": ranks, "median_s": ours, "peers": its}
