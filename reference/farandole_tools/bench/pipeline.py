"""``farandole bench pipeline``: one training step of a transformer cut into stages, beside torch's pipelining.

A round is that of `pipeline_task.py`, on as many stages as ranks; all systems take turns, round
after round, in the same processes. Peers:

- torch.distributed.pipelining on gloo, with the same schedule and, beside our 1F1B, with each of
  its schedules. Each is tried alone first, under a time-out, for some versions hang on gloo: one
  that does not get through is left out, and its error stands in place of its median;
- our own layer split: the same model without micro-batches, so that one rank works at a time;
- computing alone: all stages compute the passes of 1F1B at the same time, without messages. It is no pipeline, but how
  fast these cores are. A pipeline reaches a part of it at best (`pipeline_bound`), which each row has too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import median
from typing import Any

from farandole.errors import LaunchError
from farandole.model_parallel.schedules import choose
from farandole.runtime.launcher import run_ranks
from farandole.runtime.processes import available_cores
from farandole_tools.bench.pipeline_bound import filled
from farandole_tools.bench.pipeline_task import COMPUTING, LAYER_SPLIT, SCHEDULES, Measured, Task, compare

ROUNDS_PROGRAM = "farandole_tools.bench.pipeline_rounds"
FIRST = "1f1b"  # is put beside all of torch's
SAMPLES = (8, 2)  # of a micro-batch: computing is nearly all there is to do, or some of it
TUNING = {
    "Schedule": "as installed, over Gloo; the stages and micro-batches of ours",
    LAYER_SPLIT: "the whole batch at once",
    COMPUTING: "the passes of 1F1B, without messages",
}
ROUNDS = 15
WARM_UP = 2
TRIAL = 2  # rounds of a system alone
TRIAL_TIMEOUT_S = 90.0
TIMEOUT_S = 600.0


def rows(ranks: int) -> list[dict[str, Any]]:
    """Return a row for each of our schedules and each size of micro-batches.

    Raises:
        LaunchError: one of ours failed, or two systems did not do the same.
    """
    tasks = {samples: Task.for_ranks(ranks, samples) for samples in SAMPLES}
    errors = {name: error for name in SCHEDULES.values() if (error := why_not(name, ranks, tasks[min(SAMPLES)]))}
    peers = [name for name in SCHEDULES.values() if name not in errors]
    rows = []
    for samples, task in tasks.items():
        found = measure([*SCHEDULES, LAYER_SPLIT, COMPUTING, *peers], ranks, task, WARM_UP + ROUNDS)
        compare({name: its for name, its in found.items() if name != COMPUTING})
        for row in compose(found, errors, task, ranks):
            rows.append(row | {"name": f"{row['name']}, {samples} samples", "ranks": ranks})
    return rows


def measure(
    names: Iterable[str], ranks: int, task: Task, rounds: int, timeout_s: float = TIMEOUT_S
) -> dict[str, Measured]:
    """Let the systems of these names do their rounds in turn.

    Raises:
        LaunchError: one of them failed, or the time-out passed.
    """
    words = ["-m", ROUNDS_PROGRAM, str(rounds), *task.to_arguments(), *names]
    output = run_ranks(words, ranks, timeout_s=timeout_s, outlives=False)
    found = json.loads("".join(output.stdout))
    return {name: Measured(**its) for name, its in found.items()}


def why_not(name: str, ranks: int, task: Task) -> str | None:
    """Return the error with which the system fails when it is alone; None if it does its rounds."""
    try:
        measure([name], ranks, task, TRIAL, TRIAL_TIMEOUT_S)
    except LaunchError as error:
        return str(error).splitlines()[0]
    return None


def compose(found: dict[str, Measured], errors: dict[str, str], task: Task, ranks: int) -> list[dict[str, Any]]:
    """Return a row for each of our schedules, from what all did and why others did not."""
    medians = {name: median(measured.seconds[WARM_UP:]) for name, measured in found.items()}
    rows = []
    for name, counterpart in SCHEDULES.items():
        ours = medians[name]
        beside = [*SCHEDULES.values()] if name == FIRST else [counterpart]
        its: dict[str, dict[str, Any]] = {peer: {"error": errors[peer]} for peer in beside if peer in errors}
        for peer in (*beside, LAYER_SPLIT, COMPUTING):
            if peer in medians:
                its[peer] = {"median_s": medians[peer], "ratio": medians[peer] / ours}
        row = {"name": name, "size": task.parameter_bytes(), "median_s": ours, "peers": its}
        at_best = filled(choose(name), ranks, task.micro_batches, available_cores())
        rows.append(row | {"samples_per_s": task.batch / ours, "computing_alone_at_best": at_best})
    return rows
