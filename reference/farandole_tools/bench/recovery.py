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

Further rows are steps without any failure (`recovery_rounds`): with backups, and with checkpoints, beside a training
that keeps nothing. Ratios below 1 are what that costs. With ``--large`` the state has 1 GiB, and neither spawn nor
Elastic Horovod is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
LONG: dict[str, Any] = {"steps": 1000, "slow": "rank=0,factor=20"}  # longer than a process's start; rank 0 sleeps
GLOO_TIMEOUT_S = 5  # Elastic Horovod's; on a busy machine workers start that far from each other
TIMEOUT_S, PROTECTION_S = 300.0, 900.0
MONITOR_INTERVAL_S = 0.1
TORCHRUNS_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TUNING = {
    "restart": "a checkpoint at least every 5 steps, started again after 0.01 s",
    "Elastic Horovod": f"HOROVOD_GLOO_TIMEOUT_SECONDS={GLOO_TIMEOUT_S}, a commit every 5 steps",
    "torchrun elastic": (
        f"--monitor-interval={MONITOR_INTERVAL_S}, a snapshot every 5 steps, over Gloo; "
        + ", ".join(f"{name}={value}" for name, value in TORCHRUNS_ENVIRONMENT.items())
    ),
    "none": "nothing is kept",
}


@dataclass(frozen=True)
class Plan:
    """A training, and how often its ranks are killed.

    Attributes:
        recipe: options of the training.
        inputs: numbers of a sample.
        kills: for each method.
        every: steps between two of them.
        at_once: kills in one launch that has spares.
        rounds: for each kind of protection.
    """

    recipe: Mapping[str, Any]
    inputs: int
    kills: int
    every: int
    at_once: int
    rounds: int


USUAL = Plan({"data": "digits", "hidden": 128, "batch": 64, "lr": 0.05}, 64, 10, 20, 5, 25)
LARGE = Plan({"data": "mnist5k", "hidden": 11_200, "batch": 256, "lr": 0.01}, 784, 2, 2, 1, 3)

Seconds = list[float]
Peers = dict[str, Seconds | str]  # what each has taken, or why there is nothing


def rows(ranks: int, large: bool = False) -> list[dict[str, Any]]:
    """Return a row for each of our methods of recovery, and one for each kind of protection.

    Args:
        large: a state of 1 GiB.

    Raises:
        LaunchError: one of the trainings failed.
    """
    plan = LARGE if large else USUAL
    size = state_bytes(plan.recipe, plan.inputs)
    ours: dict[str, Seconds] = {}
    with guard.temporary_folder("farandole-bench-") as folder:
        for name, measure in methods(ranks, folder, plan).items():
            ours[name] = measure()
        theirs: Peers = {"restart": ours["restart"]}
        for name, measure in peers(ranks, folder, plan).items():
            theirs[name] = attempted(measure)
        found = [_row(name, size, ranks, median(seconds), theirs) for name, seconds in ours.items()]
        return found + protection(ranks, folder, plan)


def methods(ranks: int, folder: Path, plan: Plan) -> dict[str, Callable[[], Seconds]]:
    """Return our methods of recovery: name → what measures the seconds of each kill."""
    found: dict[str, Callable[[], Seconds]] = {
        "spare, backup": lambda: with_spares("backup", ranks, folder, plan),
        "spare, membership": lambda: with_spares("membership", ranks, folder, plan),
        "no replacement": lambda: without_spares("membership", ranks, folder, plan),
        "restart": lambda: by_restart(ranks, folder, plan),
    }
    if plan == USUAL:
        found["spawn, membership"] = lambda: with_joining_processes("membership", ranks, folder, plan)
    return found


def peers(ranks: int, folder: Path, plan: Plan) -> dict[str, Callable[[], Seconds]]:
    """Return other systems' methods of recovery: name → what measures the seconds of each kill."""
    found: dict[str, Callable[[], Seconds]] = {}
    if plan == USUAL:
        found[f"Elastic Horovod, time-out {GLOO_TIMEOUT_S} s"] = lambda: without_spares(
            "elastic_horovod", ranks, folder, plan, gloo_timeout=GLOO_TIMEOUT_S
        )
    found["torchrun elastic"] = lambda: torchrun(ranks, folder, plan)
    return found


def attempted(measure: Callable[[], Seconds]) -> Seconds | str:
    """Return what `measure` returns, or one line that says why it fails."""
    try:
        return measure()
    except (LaunchError, UsageError) as error:
        return str(error).splitlines()[0]


def with_spares(scenario: str, ranks: int, folder: Path, plan: Plan = USUAL) -> Seconds:
    """A spare for each kill: some of them in a launch."""
    seconds: Seconds = []
    while len(seconds) < plan.kills:
        spares = min(plan.at_once, plan.kills - len(seconds))
        # The victims are workers when their time comes: all but the first at first, and then those that came.
        victims = [1 + number for number in range(spares)]
        fail = [f"rank={victim},step={plan.every * (number + 1)}" for number, victim in enumerate(victims)]
        run = launch(scenario, ranks + spares, **_steps(plan, spares), spares=spares, fail=fail, out=_new(folder))
        seconds += resumed(run)
    return seconds


def without_spares(scenario: str, ranks: int, folder: Path, plan: Plan = USUAL, **options: Any) -> Seconds:
    """Half of the ranks die in a launch, one after the other; at least one is left."""
    seconds: Seconds = []
    while len(seconds) < plan.kills:
        victims = range(1, 1 + max(1, min(ranks // 2, plan.kills - len(seconds))))
        fail = [f"rank={victim},step={plan.every * victim}" for victim in victims]
        run = launch(scenario, max(2, ranks), **_steps(plan, len(victims)), **options, fail=fail, out=_new(folder))
        seconds += resumed(run)
    return seconds


def with_joining_processes(scenario: str, ranks: int, folder: Path, plan: Plan = USUAL) -> Seconds:
    """One kill a launch, early; a new process takes the slot.

    Raises:
        LaunchError: no process did.
    """
    seconds: Seconds = []
    while len(seconds) < plan.kills:
        fail = f"rank=1,step={plan.every}"
        run = launch(scenario, max(2, ranks), **plan.recipe, **LONG, spawn=1, fail=fail, out=_new(folder))
        if not run.summary.joined:
            raise LaunchError(f"no process has joined within {run.summary.wall_s:.1f} s")
        lines = EventLog(run.folder / "logbook.jsonl").lines()
        killed, joined = (next(line.when for line in lines if line.what == what) for what in ("failure", "joined"))
        seconds.append(next(line.when for line in lines if line.what == "first step" and line.when > joined) - killed)
    return seconds


def by_restart(ranks: int, folder: Path, plan: Plan = USUAL) -> Seconds:
    """One training that is killed again and again, and started again without a pause each time."""
    fail = [f"rank={ranks - 1},step={plan.every * (number + 1)}" for number in range(plan.kills)]
    run = supervised_launch(
        "restart", ranks, restarts=plan.kills, backoff_s=0.01, announce=lambda _: None, timeout_s=TIMEOUT_S,
        **_steps(plan, plan.kills), checkpoint_every=min(5, plan.every), fail=fail, out=_new(folder),
    )  # fmt: skip
    return resumed(run)


def torchrun(ranks: int, folder: Path, plan: Plan = USUAL) -> Seconds:
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
    elastic += [f"--max-restarts={2 * plan.kills}", f"--monitor-interval={MONITOR_INTERVAL_S}"]
    program = ["-m", TORCHRUN, str(files), str(plan.kills), str(plan.every), json.dumps(plan.recipe)]
    command = [sys.executable, *elastic, *program]
    environment = os.environ | TORCHRUNS_ENVIRONMENT | {rank.LAUNCH: launch_id}
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


def protection(ranks: int, folder: Path, plan: Plan = USUAL) -> list[dict[str, Any]]:
    """A step with each kind of protection, beside one without any."""
    program = ["-m", ROUNDS_PROGRAM, str(_new(folder)), str(plan.rounds), *(["large"] if plan == LARGE else [])]
    rows: list[dict[str, Any]] = json.loads(run_ranks(program, ranks, timeout_s=PROTECTION_S).stdout[0])
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


def state_bytes(recipe: Mapping[str, Any], inputs: int) -> int:
    """Parameters of the perceptron and, as many numbers again, its momentum, in float32."""
    widths = (inputs, recipe["hidden"], recipe["hidden"], 10)
    numbers: int = sum((before + 1) * after for before, after in pairwise(widths))
    return 2 * 4 * numbers


def _steps(plan: Plan, kills: int) -> dict[str, Any]:
    return {**plan.recipe, "steps": plan.every * (kills + 1)}


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
