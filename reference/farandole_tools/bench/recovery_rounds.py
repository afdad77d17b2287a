"""The cost of protection while nothing fails: the program of the ranks; at its end rank 0 prints the rows as JSON.

The same few steps of one training are timed again and again: with nothing kept, with backups in the buddy's memory (at
every step, and as often as the scenario makes them), and with checkpoints on the disk, written in the background. The
kinds take turns within one launch, so that a change in the machine's load, or where the ranks happen to run, meets all
alike. Before, each of them trains for a round from the beginning, untimed: all must have the same parameters then.

Arguments: a folder for the shards and the checkpoints, how many rounds, and `large` for a state of 1 GiB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from farandole.recovery.batches import Batches
from farandole.recovery.buddies import Buddies
from farandole.recovery.checkpointer import Checkpointer
from farandole.recovery.options import BackupOptions, ReplicaOptions
from farandole.recovery.replica import Replica
from farandole.runtime import devices
from farandole.runtime.buffers import sha256
from farandole.runtime.stop_request import StopRequest
from farandole.runtime.timing import slowest_s
from farandole.runtime.world import World
from farandole_tools.bench import recovery

USUAL = ReplicaOptions(data="mnist5k", hidden=256, batch=256, steps=1, lr=0.05)
LARGE = ReplicaOptions(steps=1, **recovery.LARGE.recipe)
STEPS, LARGE_STEPS = 40, 5  # in a round
BACKUP_EVERY = BackupOptions.backup_every
CHECKPOINTS = 2  # in a round of `STEPS`: every 20 steps, as the scenario has it if nothing is said; else one
WARM_UP = 1  # rounds, after the untimed one


class Trial:
    """One rank's part in a training that is protected in one way or another."""

    def __init__(self, world: World, folder: Path, recipe: ReplicaOptions) -> None:
        self.world, self.recipe = world, recipe
        self.steps = LARGE_STEPS if recipe == LARGE else STEPS
        self.checkpoint_every = self.steps if recipe == LARGE else self.steps // CHECKPOINTS
        self.batches = Batches(world, recipe, folder, world.size)
        self.replica = Replica(world, recipe)
        self.buddies = Buddies(every=1)  # that are due: the trial itself decides when
        self.checkpointer = Checkpointer(world, folder / "checkpoints")
        self.stop = StopRequest(world)
        self.kinds: dict[str, Callable[[], None]] = {
            "none": self.unprotected,
            "a backup every step": partial(self.with_backups, every=1),
            f"a backup every {BACKUP_EVERY} steps": partial(self.with_backups, every=BACKUP_EVERY),
            f"a checkpoint every {self.checkpoint_every} steps": self.with_checkpoints,
        }

    def compare(self) -> None:
        """Train for a round with each kind of protection. Collective.

        Raises:
            ValueError: one of them leads to other parameters.
        """
        expected = ""
        for name, work in self.kinds.items():
            del self.replica  # two with a large state would need too much memory
            devices.seed_everything(self.recipe.seed)
            self.replica = Replica(self.world, self.recipe)
            self.batches.go_to(0)
            work()
            found = sha256(self.replica.model)
            expected = expected or found
            if found != expected:
                raise ValueError(f"after {self.steps} steps {name} has other parameters than the training without")

    def unprotected(self) -> None:
        for step in range(self.steps):
            self._step(step)

    def with_backups(self, every: int) -> None:
        for step in range(self.steps):
            if step % every == 0:
                self.buddies.begin(self.world.comm, self.replica.state(step))
            self._gradient(step)
            self.buddies.complete()
            self.replica.optimizer.step()

    def with_checkpoints(self) -> None:
        """Ends when the last one is on the disk."""
        for step in range(self.steps):
            self._step(step)
            self.stop.heard()
            if (step + 1) % self.checkpoint_every == 0:
                self.checkpointer.save(self.replica.state(step + 1))
        self.stop.complete()
        self.checkpointer.finish()

    def _step(self, step: int) -> None:
        self._gradient(step)
        self.replica.optimizer.step()

    def _gradient(self, step: int) -> None:
        self.replica.begin(step)
        batch, share, _ = self.batches.next_part(self.world.rank, self.world.size)
        self.replica.gradient(batch, share)


def rows(seconds: Mapping[str, list[float]], size: int, ranks: int) -> list[dict[str, Any]]:
    """Return a row for each kind of protection, from the seconds of each round."""
    return [
        {"name": name, "size": size, "ranks": ranks, "median_s": median(its),
         "peers": {"none": beside(seconds["none"], its)}}
        for name, its in seconds.items() if name != "none"
    ]  # fmt: skip


def beside(without: list[float], its: list[float]) -> dict[str, float]:
    """Return the peer's entry in a row; the ratio is taken round by round, for the load changes between them."""
    return {"median_s": median(without), "ratio": median(a / b for a, b in zip(without, its, strict=True))}


def main(folder: Path, rounds: int, recipe: ReplicaOptions) -> None:
    with World.start(recipe) as world:
        trial = Trial(world, folder, recipe)
        trial.compare()
        seconds: dict[str, list[float]] = {name: [] for name in trial.kinds}
        for _ in range(WARM_UP + rounds):
            for name, work in trial.kinds.items():
                seconds[name].append(slowest_s(world.control, work) / trial.steps)
        size = sum(tensor.nbytes for tensor in trial.replica.state(0).shared.values())
        if world.rank == 0:
            print(json.dumps(rows(seconds, size, world.size)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), LARGE if "large" in sys.argv[3:] else USUAL)
