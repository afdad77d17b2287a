"""Online training that records for what it uses which samples; rank 0 prints them, and refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor

from farandole.data import datasets
from farandole.data.streams import RotatingDigits
from farandole.errors import UsageError
from farandole.parameter_server import online
from farandole.parameter_server.online_options import OnlineOptions
from farandole.runtime.communicator import gather_text

SAMPLES = 1000
taken: list[int] = []  # positions in the stream
used: list[int] = []  # batch sizes, of one forward pass that tests and trains


class Taken(RotatingDigits):
    def __next__(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.step < self.steps:
            taken.extend(self.positions(self.step).tolist())
        return super().__next__()


class Used(online.Learner):
    def _gradient(self, batch: tuple[Tensor, Tensor]) -> float:
        used.append(len(batch[1]))
        return super()._gradient(batch)


def refusal(**options: object) -> str:
    digits = datasets.load("digits")
    try:
        online.make_streams(OnlineOptions(**options), [2, 3, 4], digits)  # type: ignore[arg-type]
    except UsageError as error:
        return str(error)
    return ""


online.RotatingDigits = Taken  # type: ignore[misc]
online.Learner = Used  # type: ignore[misc]
summary = online.train("online", OnlineOptions(samples=SAMPLES, sync="bsp", out=Path(sys.argv[1])))
ranks = [json.loads(text) for text in gather_text(MPI.COMM_WORLD, json.dumps([taken, used]))]
if summary:
    refusals = [
        refusal(batch=2),
        refusal(samples=2),
        refusal(degrees=float("nan")),
        refusal(rate=1.0, batch=48, hang_after=30.0),
    ]
    print(json.dumps({"taken": [rank[0] for rank in ranks], "used": [rank[1] for rank in ranks],
                      "refusals": refusals}))  # fmt: skip
