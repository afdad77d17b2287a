"""A training in which ranks die where no --fail reaches them: SCENARIO RANK@PLACE[,RANK@PLACE] [OPTION ...].

Places: "start" (before the first step), "form" (while the others form new groups), "catch-up" (while they compare their
steps), "again" (when the first step is repeated, after a death in step 26), "finish" (after the last step), "over"
(when all have agreed that the training has ended), "wait" (as a spare). In a pipeline: "pass" (in the middle of a
step), "backup" (while the others exchange their copies), "go-back" (when all have been restored), "record" (when the
losses have been added up). In backup: "first-backup" (while the others exchange their first copies).

At two places a rank does not die. At "torn" it looks for a checkpoint on the disk, and finds half of one. At "slow" it
takes 20 ms more for each step.
"""

import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

from farandole.model_parallel.executor import Pipeline
from farandole.recovery import checkpoint
from farandole.recovery.buddies import Buddies
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.membership import Membership
from farandole.recovery.pipeline import PipelineStage
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.command_line import parse
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.scenarios import load

SPARES_LIFE_S = 0.5
SLOW_S = 0.02

PLACES = {  # place: class, method, and the call at which the rank dies
    "form": (Membership, "_form", 2),  # the first call is that of the start
    "catch-up": (TrainingRecord, "take_over", 1),
    "start": (Recorder, "start", 1),
    "again": (DataParallel, "_own_part", 28),  # steps 0 to 26, in one of which another has died, and that again
    "finish": (DataParallel, "finish", 1),
    "over": (World, "__exit__", 1),
    "wait": (Membership, "wait", 1),
    "pass": (Pipeline, "_pass", 100),
    "backup": (Buddies, "begin", 4),
    "first-backup": (Buddies, "begin", 1),
    "go-back": (PipelineStage, "resume", 1),
    "record": (Recorder, "finish", 1),
}


def die_at(place: str) -> None:
    """Make this rank kill itself at the place."""
    holder, name, at_call = PLACES[place]
    original = getattr(holder, name)
    calls = 0

    def dying(self: object, *arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == at_call:
            time.sleep(SPARES_LIFE_S if place == "wait" else 0)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments, **named)

    setattr(holder, name, dying)


def find_a_torn_checkpoint() -> None:
    look = checkpoint.newest

    def tear(folder: Path) -> tuple[Checkpoint | None, list[str]]:
        slot = folder / "slot-0"
        slot.mkdir(parents=True, exist_ok=True)
        (slot / "rank-0.json").write_text('{"format"')
        (slot / "rank-0.safetensors").touch()
        return look(folder)

    checkpoint.newest = tear


def be_slow() -> None:
    compute = DataParallel._own_part

    def compute_slowly(self: DataParallel, step: int) -> tuple[float, float, int]:
        time.sleep(SLOW_S)
        return compute(self, step)

    setattr(DataParallel, "_own_part", compute_slowly)  # noqa: B010  # mypy refuses to assign to a method


ALIVE = {"torn": find_a_torn_checkpoint, "slow": be_slow}
scenario, deaths, *options = sys.argv[1:]
for death in deaths.split(","):
    rank, place = death.split("@")
    if int(rank) == MPI.COMM_WORLD.rank:
        ALIVE[place]() if place in ALIVE else die_at(place)
module = load(scenario)
module.main(parse(module.Config, options))
