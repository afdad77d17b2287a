"""``farandole bench checkpoint``: what a checkpoint costs the training that goes on, and when it is on the disk.

Every rank has the same state, as in data-parallel training: tensors of float32, 64 MiB and 1 GiB of them. Ours is
`recovery.checkpointer`: each rank copies its part, and a thread writes it. Peers, in the same processes, in turn:

- torch DCP async (`torch.distributed.checkpoint.async_save`) in a thread, over Gloo; it divides the tensors among the
  ranks, too, and copies the whole state on each;
- torch DCP (`save`), which returns when everything is written;
- torch.save by rank 0, followed by fsync.

All of them flush to the disk; ours also computes checksums. A row is either the *stall*, until the training can go on,
or the time until the checkpoint is on the disk of all ranks. What each has written is read back and compared: in a
first round, which is not timed, and in the end.
"""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from farandole.runtime import guard
from farandole.runtime.launcher import run_ranks

ROUNDS_PROGRAM = "farandole_tools.bench.checkpoint_rounds"
MIB = 1 << 20
ROUNDS = {64 * MIB: 6, 1024 * MIB: 4}  # bytes of the state → rounds that are timed
OURS = "ours"
TIMES = {"stall_s": "stall", "written_s": "until on the disk"}
TUNING = {
    "torch DCP async": "as installed: written by a thread, flushed, over Gloo",
    "torch DCP": "as installed: one file for each rank, flushed, over Gloo",
    "torch.save": "followed by fsync",
}
TIMEOUT_S = 600.0


def rows(ranks: int, rounds: dict[int, int] = ROUNDS) -> list[dict[str, Any]]:
    """Return two rows for each size of the state: the stall, and the time until it is on the disk.

    Raises:
        LaunchError: one of the systems failed, or reads something else than was written.
    """
    with guard.temporary_folder("farandole-bench-") as folder:
        words = [str(folder), json.dumps(list(rounds.items()))]
        found = json.loads(run_ranks(["-m", ROUNDS_PROGRAM, *words], ranks, timeout_s=TIMEOUT_S).stdout[0])
    return [
        row(called, size, ranks, {name: median(each[kind]) for name, each in its.items()})
        for size, its in zip(rounds, found, strict=True)
        for kind, called in TIMES.items()
    ]


def row(called: str, size: int, ranks: int, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the row that `farandole bench` prints, from every system's median."""
    ours = seconds[OURS]
    peers = {name: {"median_s": its, "ratio": its / ours} for name, its in seconds.items() if name != OURS}
    return {"name": called, "size": size, "ranks": ranks, "median_s": ours, "peers": peers}
