"""Elastic Horovod, to compare with `data_parallel` and `backup`: workers commit, and go back to the last commit.

The same training as theirs (data, batches, model, optimizer, dropout), written as Horovod wants it:
what shall outlive a failure is in a State, a decorated function trains, and every k steps it commits,
which keeps a copy of the state in each worker's own memory. When a worker dies the others' all-reduce
raises HorovodInternalError; Horovod restores the last commit, meets at the driver's rendezvous
(`horovod_driver`), sends everybody the state of the new rank 0, and calls the function again. When a
host has come, the commit itself raises HostsUpdatedInterrupt, and nothing is lost.

    lost        at most k steps, done again; and with a worker all others of its host
    not kept    the random generators: the run goes on well, but not bitwise as if nothing had happened

Cost: a copy of the model and of the optimizer's state per commit, and a broadcast of a few bytes.

Source: Horovod's documentation, "Elastic Horovod"; Sergeev & Del Balso, "Horovod", 2018.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from torch import Tensor, nn

from farandole.data import datasets, shards
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data_parallel.evaluation import accuracy
from farandole.models import choices
from farandole.recovery.event_log import UNKNOWN, EventLog, RankWitness
from farandole.recovery.options import ElasticHorovodOptions
from farandole.recovery.replica import seed_random
from farandole.runtime import devices
from farandole.runtime.board import Board
from farandole.runtime.buffers import sha256
from farandole.runtime.faults import Fail, Slowness
from farandole.runtime.files import json_text
from farandole.runtime.flight_recorder import FlightRecorder
from farandole.runtime.launcher import TIMED_OUT
from farandole.runtime.progress import progress
from farandole.runtime.trace import Trace, to_json
from farandole.runtime.watchdog import Waiting, Watchdog
from farandole.tasks import mean_cross_entropy

# What the driver tells a worker: its number, and how many workers share its machine.
NUMBER = "FARANDOLE_WORKER_NUMBER"
NEIGHBOURS = "FARANDOLE_WORKER_NEIGHBOURS"
WORKERS = "workers"  # folder within the run's: where each worker is, and what it leaves at its end

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
}


@dataclass(frozen=True)
class Finished:
    """What a worker that has come to the end leaves for the record.

    Attributes:
        leader: it was rank 0 at the end, and has evaluated.
        spans: its trace as JSON, in seconds since 1970: as equal as the hosts' clocks.
    """

    number: int
    leader: bool
    sha256: str
    wall_s: float
    device: str
    spans: str
    final_loss: float | None
    test_accuracy: float | None

    def leave(self, folder: Path) -> None:
        unfinished = folder / f"{self.number}.unfinished"
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(unfinished.with_suffix(".json"))

    @classmethod
    def read(cls, file: Path) -> Finished:
        return cls(**json.loads(file.read_text(encoding="utf-8")))


class Worker:
    """One worker's part in a training that Horovod keeps together."""

    def __init__(self, options: ElasticHorovodOptions) -> None:
        assert options.out
        self.options, self.folder = options, options.out
        self.number = int(os.environ[NUMBER])
        devices.limit_threads(int(os.environ[NEIGHBOURS]))
        devices.seed_everything(options.seed)
        self.device = devices.choose(options.device, self.number)
        self.trace = Trace(self.number)
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        self.witness = RankWitness(self.event_log, self.number)
        self.slowness = Slowness(options.slow, self.number, options.seed)
        self.position = FlightRecorder(self.number, self.folder / WORKERS)
        self.watchdog = Watchdog(options.wait_timeout, self.position, self._expired)
        self.data = shards.MappedShards(self.folder / "shards")
        self.sampler = ElasticSampler(self.data.shares, options.batch, options.seed)
        self.dropout = nn.Dropout(options.dropout)
        self.board: Board | None = None
        self.losses: list[tuple[float, float, int]] = []  # since the last commit: share of the loss, seconds, samples

    def run(self) -> Finished:
        """Train to the end with whoever is there."""
        self.watchdog.start()
        with self._waiting("the others at the start"):
            hvd.init()
        model = choices.build(self.options).to(self.device)
        optimizer = hvd.DistributedOptimizer(
            OPTIMIZERS[self.options.optimizer](model.parameters(), lr=self.options.lr),
            named_parameters=model.named_parameters(),
            op=hvd.Sum,  # each loss is scaled by its share of the batch
        )
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, began=0.0, window=[])
        seed_random(self.options.seed, self.number, 0)
        death = self._begin_chaos()
        self.watchdog.begin("the others' state", -1)  # ended by `_go_on`, which Horovod calls after that
        hvd.elastic.run(self._train)(state)
        if death:
            death.cancel()
        return self._finish(state)

    def _train(self, state: Any) -> None:
        """All steps from the state's on; called again by Horovod when the workers have changed."""
        try:
            self._go_on(state)
            first = state.step
            for step in progress(range(first, self.options.steps), self.options.steps - first, hvd.rank()):
                self._begin_step(step)
                self._step(state, step)
                state.step = step + 1
                if step == first and hvd.rank() == 0:
                    self.event_log.write("first step", self.number, step)
                if state.step % self.options.commit_every == 0 or state.step == self.options.steps:
                    self._commit(state)
        except HorovodInternalError:
            self.event_log.write("noticed", UNKNOWN, state.step, "lost")  # Horovod does not say who
            self.watchdog.begin("the rendezvous after a failure", -1)
            raise
        except HostsUpdatedInterrupt:
            if hvd.rank() == 0:
                self.event_log.write("enlarged", self.number, state.step)
            self.watchdog.begin("the rendezvous with new workers", -1)
            raise

    def _go_on(self, state: Any) -> None:
        """Whoever is there now has the same state: take up the work from it."""
        if hvd.rank() == 0:
            self.event_log.write("start", self.number, state.step)
        starts, now = hvd.broadcast_object((self.event_log.starts(), time.time()))
        self.watchdog.end()
        if not state.began:
            state.began = now
            state.save()
        self.trace.regroup(starts)
        self.sampler.go_to(state.step)
        self.losses.clear()
        self._write_metrics(state)  # of a rank 0 that has died before it could

    def _step(self, state: Any, step: int) -> None:
        parts = divide(next(self.sampler), hvd.size())
        batch, whole = self.data[parts[hvd.rank()]], sum(map(len, parts))
        inputs, targets = (torch.from_numpy(each).to(self.device) for each in (batch.inputs, batch.targets))
        state.optimizer.zero_grad()
        with self.trace.span("forward and backward", "compute"):
            start = time.perf_counter()
            loss = self._loss(state.model, inputs, targets) * (len(inputs) / whole)
            loss.backward()  # Horovod begins to reduce meanwhile
            time.sleep((self.slowness.next_factor(step) - 1) * (time.perf_counter() - start))
        with self.trace.span("all-reduce", "communicate", collective=True), self._waiting("Horovod's all-reduce"):
            state.optimizer.synchronize()
        with self.trace.span("update", "compute"), state.optimizer.skip_synchronize():
            state.optimizer.step()
        self.losses.append((loss.item(), (time.time() - state.began) / hvd.size(), whole))

    def _loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        seen = self.dropout(inputs) if inputs.is_floating_point() else inputs  # characters cannot be scaled
        return mean_cross_entropy(model(seen), targets)

    def _commit(self, state: Any) -> None:
        """Keep the state, and write the losses of the steps since the last commit.

        Raises:
            HostsUpdatedInterrupt: other hosts are there; the state is kept.
        """
        with self.trace.span("commit", "communicate", collective=True), self._waiting("Horovod's commit"):
            own = torch.tensor([(loss, wall_s) for loss, wall_s, _ in self.losses], dtype=torch.float64)
            summed = hvd.allreduce(own, op=hvd.Sum, name="losses").tolist()
            first = state.step - len(summed)
            state.window = [
                {"step": first + number, "wall_s": wall_s, "loss": loss, "samples": samples}
                for number, ((loss, wall_s), (_, _, samples)) in enumerate(zip(summed, self.losses, strict=True))
            ]
            self.losses.clear()
            state.commit()
        self._write_metrics(state)

    def _write_metrics(self, state: Any) -> None:
        """As rank 0: what is committed and not written yet.

        A commit has been kept by all before rank 0 returns from it, so nothing is written that could be undone.
        """
        if hvd.rank() == 0:
            with (self.folder / "metrics.jsonl").open("a+", encoding="utf-8") as file:
                file.seek(0)
                written = sum(1 for _ in file)  # a line a step
                lines = [line for line in state.window if line["step"] >= written]
                file.write("".join(json_text(line) + "\n" for line in lines))
            if self.options.tensorboard:
                self.board = self.board or Board(self.options.tensorboard / self.folder.name)
                for line in lines:
                    self.board.log(line, state.began)

    def _finish(self, state: Any) -> Finished:
        self.watchdog.stop()
        leads = hvd.rank() == 0
        since_1970 = time.time() - time.perf_counter()
        spans = [replace(s, start=s.start + since_1970, end=s.end + since_1970) for s in self.trace.spans]
        test = datasets.split(datasets.load(self.options.data), self.options.seed).test if leads else None
        test_accuracy = accuracy(state.model, test, self.device) if test else None
        if self.board:
            self.board.close(state.step, test_accuracy)
        return Finished(
            number=self.number,
            leader=leads,
            sha256=sha256(state.model),
            wall_s=state.window[-1]["wall_s"],
            device=devices.describe(self.device),
            spans=to_json(spans),
            final_loss=state.window[-1]["loss"],
            test_accuracy=test_accuracy,
        )

    def _begin_step(self, step: int) -> None:
        self.position.step = step
        for fail in self.options.fail:
            if (fail.rank, fail.step) == (self.number, step):
                self._strike(fail)

    def _begin_chaos(self) -> threading.Timer | None:
        """From now on `--chaos`, if it was given, may kill this worker at any moment; who has come later draws anew."""
        if self.options.chaos is None:
            return None
        assert self.options.workers
        later, rank = divmod(self.number, self.options.workers)
        after_s = min(self.options.chaos.death_s(rank, self.options.workers, later), threading.TIMEOUT_MAX)
        death = threading.Timer(after_s, lambda: self._strike(Fail(self.number, self.position.step)))
        death.daemon = True
        death.start()
        return death

    def _strike(self, fail: Fail) -> None:
        self.witness.strikes(fail)
        fail.strike()

    @contextmanager
    def _waiting(self, call: str) -> Iterator[None]:
        self.watchdog.begin(call, -1)
        try:
            yield
        finally:
            self.watchdog.end()

    def _expired(self, waiting: Waiting, seconds: float) -> NoReturn:
        print(
            f"farandole: worker {self.number} at step {self.position.step} has waited {seconds:.0f} s for "
            f"{waiting[0]}, longer than --wait-timeout {self.options.wait_timeout:g}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(TIMED_OUT)


def work(options: ElasticHorovodOptions) -> None:
    """What a process does that Horovod's driver has started."""
    assert options.out
    Worker(options).run().leave(options.out / WORKERS)
