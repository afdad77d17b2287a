"""Claims about recovery from other ranks' memory: how much sooner than by a restart, and at what cost."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Source
from farandole.claims.trainings import TIMEOUT_S, trained
from farandole.launching import supervised_launch

FAIL = "rank=2,step=150"
TRAINING: dict[str, Any] = {"steps": 300, "data": "mnist5k", "batch": 256}
TRIES = 2


def restarted_s(**options: Any) -> float:
    """Return the seconds of a training under a supervisor, which restarts it from its last checkpoint."""
    with TemporaryDirectory(prefix="farandole-claim-") as folder:
        start = time.perf_counter()
        supervised_launch(
            "restart", 4, backoff_s=0.1, announce=lambda line: None, timeout_s=TIMEOUT_S, out=Path(folder) / "run",
            checkpoint_every=20, **TRAINING, **options,
        )  # fmt: skip
        return time.perf_counter() - start


def recovery() -> Measured:
    """Kill a rank in both ways of training, and compare the seconds that each loses."""
    broken = [trained("backup", 5, spares=1, backup_every=1, checkpoint_every=0, fail=FAIL, **TRAINING)[0].summary
              for _ in range(TRIES)]  # fmt: skip
    faults = [run.faults[0] for run in broken]
    from_memory = min(fault["resumed_s"] for fault in faults)
    lost = min(restarted_s(fail=FAIL) for _ in range(TRIES)) - min(restarted_s() for _ in range(TRIES))
    with_copies, without = (
        max(trained("backup", 4, backup_every=every, checkpoint_every=0, **TRAINING)[0].summary.samples_per_s
            for _ in range(TRIES)) for every in (1, 10_000)
    )  # fmt: skip
    figures = {
        "seconds lost, restart from disk / recovery from memory": lost / from_memory,
        "seconds from the failure to the next step, from memory": from_memory,
        "seconds lost by the restart": lost,
        "steps repeated": max(fault["steps_lost"] for fault in faults),
        "speed with a copy after each step / without": with_copies / without,
    }
    return Measured(figures)


CLAIMS = (
    Claim(
        "in-memory-recovery",
        Source("Wang et al.", 2023, "Gemini: fast failure recovery in distributed training with in-memory checkpoints",
               "abstract"),
        "Checkpoints in other machines' memory, after every iteration, recover a training more than 13 times faster "
        "than existing solutions and do not slow it down.",
        "real ranks",
        "4 ranks and a spare, one killed at step 150 of 300; `backup` with a copy at the buddy after each step, beside "
        "`restart` from a checkpoint every 20 steps on disk under a supervisor; the better of two tries each. The "
        "paper trains models of up to 100 billion parameters, with checkpoints in remote storage",
        45,
        recovery,
        (
            Bound("seconds lost, restart from disk / recovery from memory", "at least 13 times faster", least=13,
                  core=True),
            Bound("steps repeated", "at most one step is repeated", most=1, core=True),
            Bound("speed with a copy after each step / without", "at least 95 % of the speed", least=0.95,
                  otherwise="a step of this small model takes a few milliseconds, and its copy is as large as its "
                  "state; the paper sends copies while the network is idle within a step of seconds"),
        ),
        "recovery/buddies.py",
    ),
)  # fmt: skip
