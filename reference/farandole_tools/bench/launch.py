"""``farandole bench launch``: how long a whole launch takes, for a single step of training.

The time from the command to its end, as a user waits for it: the launcher, the ranks' start, one step and its record.
Nothing is kept from one launch to the next but files in the system's cache. Launches alternate. Peers:

- the same command with FARANDOLE_WARM=0, where each rank imports torch itself;
- torchrun, with one step of torch DDP over Gloo on the same model (`launch_torchrun`), which writes no record;
- a Python that imports torch, and does nothing else: what no launch of a training in torch can be faster than.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from farandole.errors import LaunchError
from farandole.runtime import rank_starter
from farandole_tools.forked_ranks import fork_client

SWEEPS = 5
TIMEOUT_S = 300
EACH_IMPORTS, TORCHRUN, TORCH_ALONE = "each rank imports torch", "torchrun", "import torch"
OURS = "launch"
TORCHRUNS_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
TUNING = {
    EACH_IMPORTS: f"{fork_client.ADDRESS}=0",
    TORCHRUN: "--standalone, over Gloo; OMP_NUM_THREADS=1",
    TORCH_ALONE: "python -P -c 'import torch'",
}


def rows(ranks: int) -> list[dict[str, Any]]:
    """Return one row: the median of our launches, and of each peer's. `size` is 0, since there is none.

    Raises:
        LaunchError: one of the launches failed.
    """
    seconds: dict[str, list[float]] = {}
    for _ in range(SWEEPS):
        for name, (words, environment) in systems(ranks).items():
            seconds.setdefault(name, []).append(timed(words, environment))
    return [row(ranks, {name: median(its) for name, its in seconds.items()})]


def row(ranks: int, medians: Mapping[str, float]) -> dict[str, Any]:
    """Return the row that `farandole bench` prints, from the median of each system."""
    ours = medians[OURS]
    peers = {name: {"median_s": its, "ratio": its / ours} for name, its in medians.items() if name != OURS}
    return {"name": f"{OURS}, one step", "size": 0, "ranks": ranks, "median_s": ours, "peers": peers}


def systems(ranks: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return what is run, by name: the words after `python`, and what is set in the environment."""
    ours = ["-m", "farandole", "run", "sync_sgd", "-n", str(ranks), "--steps", "1", "--json"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return {
        OURS: (ours, {}),
        EACH_IMPORTS: (ours, {fork_client.ADDRESS: "0"}),
        TORCHRUN: ([*torchrun, "-m", "farandole_tools.bench.launch_torchrun"], TORCHRUNS_ENVIRONMENT),
        TORCH_ALONE: (["-c", "import torch"], {}),
    }


def timed(words: list[str], environment: Mapping[str, str]) -> float:
    """Return the seconds of a command, in a folder of its own and without this process's fork server.

    Raises:
        LaunchError: it failed.
    """
    own = (fork_client.ADDRESS, rank_starter.MODULE)
    kept = {name: value for name, value in os.environ.items() if name not in own}
    with tempfile.TemporaryDirectory(prefix="farandole-") as folder:
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", *words],
            env={**kept, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        seconds = time.perf_counter() - begun
    if done.returncode:
        raise LaunchError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return seconds
