"""Serving predictions with parameters that are being trained at the same time.

A reader is a client that does not train. It reads the parameters from the servers periodically, by `KVWorker.read`. It
has no clock, so no policy waits for it. Each server answers from one version of its part, since it moves nothing while
an answer is being sent; parts of different servers may be some updates apart, as they are for a worker. The reader
copies them into its model between two predictions.

Between two readings the served parameters become older. Their age is measured in seconds and in updates: how often a
server has moved its part since. Source: McMahan et al., "Ad click prediction: a view from
the trenches", 2013 (one large model trained online and served). Document 000's online training.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from farandole.data.datasets import Dataset
from farandole.data.streams import rotated
from farandole.parameter_server.kv_worker import KVWorker
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

QUESTIONS = 60  # held-out samples that are answered together
QUESTIONS_EVERY_S = 0.05


@dataclass(frozen=True)
class Served:
    """One line of serving.jsonl: some answers at one time.

    Attributes:
        reader: the rank that answered.
        wall_s: when, on the clock of metrics.jsonl.
        position: how many samples of the stream had been learned from by then.
        angle: by which the questions were turned, the stream's at that position.
        reading: the number of the reading that brought the parameters served.
        versions: theirs: server's rank → how often it had moved its part.
        age_updates: how much further the server was that had gone furthest since.
        age_s: seconds since these parameters were requested.
        samples: how many questions.
        accuracy: share of right answers, 0 to 1.
    """

    reader: int
    wall_s: float
    position: int
    angle: float
    reading: int
    versions: dict[int, int]
    age_updates: int
    age_s: float
    samples: int
    accuracy: float


class Reader:
    """One rank that serves.

    Args:
        model, flat: what answers, and its parameters.
        held_out: upright samples that no worker trains on; the questions.
        samples, degrees: the stream's length, and the angle at its end.

    Attributes:
        served: what it has answered so far, as lines of serving.jsonl.
    """

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        model: nn.Module,
        flat: FlatBuffers,
        held_out: Dataset,
        *,
        samples: int,
        degrees: float,
        publish_every_s: float,
    ) -> None:
        self.world, self.recorder, self.model, self.flat, self.held_out = world, recorder, model, flat, held_out
        self.samples, self.degrees, self.publish_every_s = samples, degrees, publish_every_s
        self.served: list[dict[str, Any]] = []
        self._incoming = np.empty_like(flat.values_np)
        self._reading = -1
        self._read_at = -np.inf
        self._versions: dict[int, int] = {}

    def work(self, kv: KVWorker) -> None:
        """Read and answer until no worker is left; the last answers are the final parameters'."""
        workers_left = True
        while workers_left:
            begin = time.perf_counter()
            progress = kv.wait(kv.progress(), "the manager's answer")
            workers_left = progress.workers > 0
            if self.recorder.elapsed_s - self._read_at >= self.publish_every_s or not workers_left:
                self._read(kv)
            self._answer(kv, progress.samples)
            if workers_left:
                pause = min(QUESTIONS_EVERY_S, self.publish_every_s) - (time.perf_counter() - begin)
                time.sleep(max(0.0, pause))

    def _read(self, kv: KVWorker) -> None:
        """Take over the servers' parameters."""
        self._reading += 1
        self.world.begin_step(self._reading)
        self._read_at = self.recorder.elapsed_s
        with self.world.trace.span("read", "communicate"):
            self._versions = kv.wait(kv.read(self._incoming), "reading of the parameters")
        self.flat.values_np[:] = self._incoming
        self.flat.values_from_host()

    def _answer(self, kv: KVWorker, position: int) -> None:
        """Predict for the next held-out samples, at the stream's angle."""
        numbers = np.arange(QUESTIONS) + QUESTIONS * len(self.served)
        questions = self.held_out[numbers % len(self.held_out)]
        angle = self.degrees * min(1.0, position / max(self.samples - 1, 1))
        now = kv.wait(kv.versions(), "the servers' versions")
        with self.world.compute("predict"):
            guesses = self._predict(rotated(questions.inputs, np.full(QUESTIONS, angle)))
        line = Served(
            reader=self.world.rank,
            wall_s=self.recorder.elapsed_s,
            position=position,
            angle=angle,
            reading=self._reading,
            versions=self._versions,
            age_updates=max(now[server] - version for server, version in self._versions.items()),
            age_s=self.recorder.elapsed_s - self._read_at,
            samples=QUESTIONS,
            accuracy=float((guesses == questions.targets).mean()),
        )
        self.served.append(asdict(line))

    def _predict(self, inputs: NDArray[np.float32]) -> NDArray[np.int64]:
        with torch.no_grad():
            logits = self.model(torch.from_numpy(inputs).to(self.world.device))
        return np.asarray(logits.argmax(dim=1).cpu().numpy())
