"""The program of torchrun for ``bench recovery``: DDP with a snapshot on disk; in each start a rank kills itself.

Arguments: a folder, how many starts shall die, steps between two deaths, and the recipe as JSON. The
snapshot is what torch's tutorials on fault tolerance save: the model, the optimizer and the step, by rank 0.
The folder gets `killed` and `back`: times of day, one a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from farandole.data import datasets

SNAPSHOT_EVERY = 5  # steps


def note(file: Path) -> None:
    """Append the time of day; it is there when this returns."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{time.time()!r}\n")


def noted(file: Path) -> int:
    """Return the number of times in the file."""
    return len(file.read_text(encoding="utf-8").split()) if file.exists() else 0


def main(folder: Path, kills: int, every: int, recipe: dict[str, float | str]) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    deaths = noted(folder / "killed")  # not the count of starts: of these some fail by themselves
    train = datasets.split(datasets.load(str(recipe["data"])), 0).train
    inputs, targets = torch.from_numpy(train.inputs).flatten(1), torch.from_numpy(train.targets)
    width, part = int(recipe["hidden"]), int(recipe["batch"]) // ranks
    network = nn.Sequential(nn.Linear(inputs.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                            nn.Linear(width, 10))  # fmt: skip
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(recipe["lr"]), momentum=0.9)
    snapshot, first = folder / "snapshot.pt", 0
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    order = torch.Generator().manual_seed(rank)
    for step in range(first, every * (kills + 1)):
        if deaths < kills and step == every * (deaths + 1) and rank == ranks - 1:
            note(folder / "killed")
            os.kill(os.getpid(), signal.SIGKILL)
        rows = torch.randint(len(inputs), (part,), generator=order)
        optimizer.zero_grad()
        cross_entropy(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
        if step == first and rank == 0 and noted(folder / "back") < deaths:
            note(folder / "back")
        if (step + 1) % SNAPSHOT_EVERY == 0 and rank == 0:
            unfinished = folder / "snapshot.unfinished"
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, unfinished)
            unfinished.replace(snapshot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
