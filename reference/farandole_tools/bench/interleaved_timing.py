"""Interleaved timing: the systems of one launch are timed round by round, one after the other; launches alternate too.

A change in the machine's load then affects all systems alike. A library whose threads would take processor time from
the others runs in its own launch, and so does one that is set up by its environment.

    python -m farandole_tools.bench.interleaved_timing RANKS PROGRAM TASK SYSTEM ...

does one launch, from a process that has that environment from its start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any, TypeVar

from farandole.errors import LaunchError
from farandole.runtime.launcher import run_ranks

WARM_UP = 2
TIMEOUT_S = 300.0

Case = TypeVar("Case", bound=int | str)
Medians = dict[int, dict[str, float]]  # of vectors so long, of each system, in seconds


def medians(
    program: str,
    launches: list[list[str]],
    rounds: dict[Case, int],
    ranks: int,
    sweeps: int,
    settings: Mapping[str, tuple[str, Mapping[str, str]]] | None = None,
) -> dict[Case, dict[str, float]]:
    """Return each system's median seconds in each case, over the rounds of all sweeps without the first ones.

    A setting whose launch fails has no medians, or those of the sweeps before.

    Args:
        program: the module that the ranks run, with the cases and their rounds as JSON and then the systems' names;
            rank 0 prints, for each case, every system's seconds.
        launches: for each launch, the systems that are timed in it.
        rounds: case → how many of a sweep count.
        settings: name → a system, and the environment in which it is measured under that name.

    Raises:
        LaunchError: one of the systems failed or did wrong.
    """
    seconds: dict[Case, dict[str, list[float]]] = {case: {} for case in rounds}
    task = json.dumps([[case, WARM_UP + number] for case, number in rounds.items()])
    for _ in range(sweeps):
        for names in launches:
            output = run_ranks(["-m", program, task, *names], ranks, timeout_s=TIMEOUT_S, outlives=False)
            for case, found in zip(rounds, json.loads("".join(output.stdout)), strict=True):
                for name, its in found.items():
                    seconds[case].setdefault(name, []).extend(its[WARM_UP:])
        for name, (system, environment) in (settings or {}).items():
            for case, found in zip(rounds, _set_up([program, task, system], ranks, environment), strict=False):
                seconds[case].setdefault(name, []).extend(found[system][WARM_UP:])
    return {case: {name: median(values) for name, values in its.items()} for case, its in seconds.items()}


def _set_up(words: list[str], ranks: int, environment: Mapping[str, str]) -> list[dict[str, list[float]]]:
    """Return what one launch prints in `environment`; nothing if it fails."""
    command = [sys.executable, "-P", "-m", "farandole_tools.bench.interleaved_timing", str(ranks), *words]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: list[dict[str, list[float]]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found


def row(
    name: str, size: int, ranks: int, seconds: dict[str, float], peers: dict[str, str], missing: dict[str, str]
) -> dict[str, Any]:
    """Return the row that `farandole bench` prints for one of our systems.

    Args:
        size: in bytes.
        seconds: every system's median.
        peers: the systems it is compared with, and what each is called.
        missing: those of them that cannot be measured, and why.
    """
    beside: dict[str, dict[str, Any]] = {peers[peer]: {"error": error} for peer, error in missing.items()}
    for peer, called in peers.items():
        if peer in seconds:
            beside[called] = {"median_s": seconds[peer], "ratio": seconds[peer] / seconds[name]}
    return {"name": name, "size": size, "ranks": ranks, "median_s": seconds[name], "peers": beside}


def why_not(name: str) -> str | None:
    """Return why that peer cannot be measured here and how to change that; None if it can."""
    if name == "Horovod" and importlib.util.find_spec("horovod") is None:
        return "Horovod is not installed: make setup builds it"
    return None


if __name__ == "__main__":
    try:
        print(*run_ranks(["-m", *sys.argv[2:]], int(sys.argv[1]), timeout_s=TIMEOUT_S, outlives=False).stdout)
    except LaunchError as failed:
        sys.exit(failed.message)
