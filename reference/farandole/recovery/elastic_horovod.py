"""Elastic Horovod, to compare with `data_parallel` and `backup`: workers commit, and go back to the last commit.

The same training as theirs (task, batches, optimizer, dropout), in the form that Horovod requires. A State holds what
must survive a failure, and a decorated function trains. Every k steps it commits, which keeps a copy of the state in
each worker's own memory. When a worker dies the all-reduce of the others raises HorovodInternalError. Horovod restores
the last commit, meets at the driver's rendezvous (`horovod_driver`), broadcasts the state of the new rank 0, and calls
the function again. When a host has been added the commit itself raises HostsUpdatedInterrupt, and nothing is lost.

    lost        at most k steps, which are repeated; and with a worker all others of its host
    not kept    the random generators: the parameters differ from those of an undisturbed run

Cost: a copy of the model and of the optimizer's state per commit, and a broadcast of a few bytes.

Source: Horovod's documentation, "Elastic Horovod"; Sergeev & Del Balso, "Horovod", 2018.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from numpy.typing import NDArray
from torch import nn

from farandole import tasks
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data_parallel.accumulation import backward
from farandole.data_parallel.evaluation import judged
from farandole.data_parallel.horovod_twin import make_fit
from farandole.recovery.batches import divided_data
from farandole.recovery.events import UNKNOWN
from farandole.recovery.horovod_world import WORKERS, Finished, HorovodWorld
from farandole.recovery.options import ElasticHorovodOptions
from farandole.recovery.replica import without_some_inputs
from farandole.runtime import devices
from farandole.runtime.board import Board
from farandole.runtime.buffers import mean_statistics, sha256
from farandole.runtime.files import json_text
from farandole.runtime.progress import progress
from farandole.runtime.trace import to_json

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
}


class Worker:
    """One worker of a training whose workers Horovod manages."""

    def __init__(self, options: ElasticHorovodOptions) -> None:
        self.options, self.task, self.world = options, tasks.of(options), HorovodWorld(options)
        shares, self.reader = divided_data(self.task, options.seed, self.world.folder, self.world.device)
        self.sampler = ElasticSampler(shares, options.batch, options.seed)
        self.dropout = nn.Dropout(options.input_dropout)
        self.board: Board | None = None
        self.losses: list[tuple[float, float, int]] = []  # since the last commit: share of the loss, seconds, samples

    def run(self) -> Finished:
        """Train to the end, whichever other workers die."""
        self.world.watchdog.start()
        with self.world.waiting("the others at the start"):
            hvd.init()
        model = self.task.model().to(self.world.device)
        make_fit(model)
        optimizer = hvd.DistributedOptimizer(
            OPTIMIZERS[self.options.optimizer](model.parameters(), lr=self.options.lr),
            named_parameters=model.named_parameters(),
            op=hvd.Sum,  # each loss is scaled by its share of the batch
            backward_passes_per_step=self.options.accumulate,  # reduces after this many
        )
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, began=0.0, window=[])
        devices.seed_rank(self.options.seed, self.world.number, 0)
        self.world.begin_chaos()
        self.world.watchdog.begin("the others' state", -1)  # ended by `_go_on`, which Horovod calls after that
        hvd.elastic.run(self._train)(state)
        self.world.end_chaos()
        return self._finish(state)

    def _train(self, state: Any) -> None:
        """Take all steps from the state's on; Horovod calls it again when the workers have changed."""
        try:
            self._go_on(state)
            first = state.step
            for step in progress(range(first, self.options.steps), self.options.steps - first, hvd.rank()):
                self.world.begin_step(step)
                self._step(state, step)
                state.step = step + 1
                if step == first and hvd.rank() == 0:
                    self.world.event_log.write("first step", self.world.number, step)
                if state.step % self.options.commit_every == 0 or state.step == self.options.steps:
                    self._commit(state)
            with self.world.waiting("the mean of the statistics"):
                mean_statistics(state.model, _sum_over_workers, hvd.size())
        except HorovodInternalError:
            self.world.event_log.write("noticed", UNKNOWN, state.step, "lost")  # Horovod does not report which worker
            self.world.watchdog.begin("the rendezvous after a failure", -1)
            raise
        except HostsUpdatedInterrupt:
            if hvd.rank() == 0:
                self.world.event_log.write("enlarged", self.world.number, state.step)
            self.world.watchdog.begin("the rendezvous with new workers", -1)
            raise

    def _go_on(self, state: Any) -> None:
        """Continue from the state, which is the same on all workers now."""
        if hvd.rank() == 0:
            self.world.event_log.write("start", self.world.number, state.step)
        starts, now = hvd.broadcast_object((self.world.event_log.starts(), time.time()))
        self.world.watchdog.end()
        if not state.began:
            state.began = now
            state.save()
        self.world.trace.regroup(starts)
        self.sampler.go_to(state.step)
        self.losses.clear()
        self._write_metrics(state)  # of a rank 0 that has died before it could

    def _step(self, state: Any, step: int) -> None:
        world = self.world
        parts = divide(next(self.sampler), hvd.size())
        own, whole = parts[hvd.rank()], sum(map(len, parts))
        batch = without_some_inputs(self.reader[own], self.dropout)
        state.optimizer.zero_grad()
        with world.compute("forward and backward", step):
            share = len(own) / whole
            mean_loss = backward(partial(self.task.loss, state.model), batch, share, self.options.accumulate)
        with world.trace.span("all-reduce", "communicate", collective=True), world.waiting("Horovod's all-reduce"):
            state.optimizer.synchronize()
        with world.trace.span("update", "compute"), state.optimizer.skip_synchronize():
            state.optimizer.step()
            devices.finish(world.device)
        self.losses.append((mean_loss.item() * share, (time.time() - state.began) / hvd.size(), whole))

    def _commit(self, state: Any) -> None:
        """Keep the state, and write the losses of the steps since the last commit.

        Raises:
            HostsUpdatedInterrupt: the hosts have changed; the state is kept.
        """
        world = self.world
        with world.trace.span("commit", "communicate", collective=True), world.waiting("Horovod's commit"):
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
        """As rank 0, write what is committed and not written yet.

        All workers have kept a commit before rank 0 returns from it, so no line is written that could be undone.
        """
        if hvd.rank() == 0:
            with (self.world.folder / "metrics.jsonl").open("a+", encoding="utf-8") as file:
                file.seek(0)
                written = sum(1 for _ in file)  # a line a step
                lines = [line for line in state.window if line["step"] >= written]
                file.write("".join(json_text(line) + "\n" for line in lines))
            if self.options.tensorboard:
                self.board = self.board or Board(self.options.tensorboard / self.world.folder.name)
                for line in lines:
                    self.board.log(line, state.began)

    def _finish(self, state: Any) -> Finished:
        self.world.watchdog.stop()
        leads = hvd.rank() == 0
        test = self.task.data(self.options.seed).test if leads else None
        test_metrics = judged(state.model, test, self.world.device, self.task.metrics) if test else None
        if self.board:
            self.board.close(state.step, test_metrics or {})
        return Finished(
            number=self.world.number,
            leader=leads,
            sha256=sha256(state.model),
            wall_s=state.window[-1]["wall_s"],
            place=self.world.place.described(),
            spans=to_json(self.world.spans()),
            final_loss=state.window[-1]["loss"],
            test_metrics=test_metrics,
        )


def _sum_over_workers(values: NDArray[Any]) -> None:
    hvd.allreduce_(torch.from_numpy(values), op=hvd.Sum, name="statistics")


def work(options: ElasticHorovodOptions) -> None:
    """Train as a worker that Horovod's driver has started, and leave the result for the driver."""
    worker = Worker(options)
    worker.run().leave(worker.world.folder / WORKERS)
