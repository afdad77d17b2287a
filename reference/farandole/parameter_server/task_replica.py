"""A Downpour replica that computes the coordinator's tasks instead of batches of its own share (`tasks`).

It has all the data, since it may receive any task. For each task it fetches the parameters, computes the mini-batches'
gradients with its own steps in between, and pushes their sum, as `downpour` does with n_fetch = n_push and without
overlap. With one worker the result is bitwise the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from numpy.typing import NDArray
from torch import nn

from farandole.data.batch import Batch
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.samples import Samples
from farandole.parameter_server.downpour import Replica
from farandole.parameter_server.header import NO_TASK
from farandole.parameter_server.kv_worker import KVWorker
from farandole.runtime.world import World
from farandole.tasks import Loss


class MiniBatches:
    """All mini-batches of all epochs by number, the same on every rank: any rank can compute any of them.

    Args:
        samples: number of samples of the training set.
        batch: samples of a step of all workers together; a mini-batch is one worker's part of it.
    """

    def __init__(self, samples: int, batch: int, workers: int, seed: int) -> None:
        self.samples, self.workers, self.seed = samples, workers, seed
        self.epoch = steps_per_epoch(samples, batch) * workers

    def rows(self, number: int) -> NDArray:  # type: ignore[type-arg]
        """Return the indices of a mini-batch's samples; every sample is in one of an epoch's mini-batches."""
        sampler = EpochSampler(self.samples, self.epoch, self.seed, 0)
        epoch, step = divmod(number, self.epoch)
        sampler.restore({"seed": self.seed, "rank": 0, "epoch": epoch, "step": step})
        return next(sampler)

    def share(self, number: int) -> float:
        """Return n_r / N: the part that a mini-batch is of its step, which has `workers` mini-batches."""
        first = number - number % self.workers
        sizes = [batch_size(self.samples, self.epoch, first + part) for part in range(self.workers)]
        return sizes[number % self.workers] / sum(sizes)


class TaskReplica(Replica):
    """One worker's copy of the model.

    Args:
        total: mini-batches of the whole training.
        size: mini-batches of a task.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        data: Samples,
        batches: MiniBatches,
        total: int,
        size: int,
        local_lr: float,
    ) -> None:
        super().__init__(world, model, loss, self._take, n_fetch=size, n_push=size, local_lr=local_lr, overlap=False)
        self.batches, self.total, self.size = batches, total, size
        self._reader = data.on(world.device)
        self._to_do: list[int] = []  # the remaining mini-batches of the task, the last one first

    def work(self, kv: KVWorker) -> None:
        """Compute tasks, until all are done."""
        done = NO_TASK
        for clock in count():
            with self.world.trace.span("receive a task", "communicate"):
                task: int | None = kv.wait(kv.next_task(done), "a task")
            if task is None or not self._begin(kv):
                return
            self.world.begin_step(clock)
            self._to_do = list(reversed(self.of_task(task)))
            losses, samples = 0.0, 0
            with self.world.compute("forward and backward"):
                while self._to_do:
                    loss, size = self._iterate()
                    losses, samples = losses + loss * size, samples + size
            self._send_sum(kv, clock, task)
            kv.report(clock, losses / samples, samples)
            done = task

    def of_task(self, task: int) -> Sequence[int]:
        """Return the numbers of a task's mini-batches."""
        return range(task * self.size, min((task + 1) * self.size, self.total))

    def _begin(self, kv: KVWorker) -> bool:
        self._fetch = kv.pull(self._arriving)
        return self._take_fetched(kv)

    def _take(self) -> tuple[Batch, float]:
        number = self._to_do.pop()
        return self._reader[self.batches.rows(number)], self.batches.share(number)
