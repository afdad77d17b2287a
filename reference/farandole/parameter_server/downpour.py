"""Downpour SGD: replicas train locally, and exchange with the servers only every few iterations.

The parameter server of DistBelief. Each replica has a copy x of the model and its own samples. The servers store w, in
shards, and apply each push at once, by Adagrad. In iteration i a replica

    every n_fetch iterations     requests w; when it has arrived,  x ← w
    always                       g = n_r/N · ∇ mean loss of its batch at x,   a ← a + g,   x ← x − η'·∇
    every n_push iterations      pushes a,  a ← 0;  the rest is pushed at the end

(η' is `--local-lr`.) Fetches and pushes overlap with computation. Fetched parameters arrive in a second buffer, and
replace x before the next iteration. While one sum of gradients is sent, further gradients are added to a second sum. A
replica waits only if the servers are slower than it is: a fetch or push is due and the previous one has not been
answered. With `--no-overlap` it waits for each answer; one replica that fetches and pushes in every iteration is then
single-process SGD with Adagrad.

The first server counts each fetch as n_fetch iterations of the whole work. So a fast replica takes over iterations of a
slow one. The iterations that a replica computes until it receives that no work is left count as well: with overlap, up
to n_fetch more.

Cost: 1/n_fetch + 1/n_push messages of n bytes per replica and iteration, instead of 2. In return gradients are stale;
the staleness of a push is counted from the fetch at which its oldest gradient was computed.

Source: Dean et al., "Large scale distributed deep networks", 2012. Document 001: DistBelief, and
its asynchronous update, which hides communication behind computation.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from farandole.data.batch import Batch, size
from farandole.parameter_server.header import NO_TASK
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss

Array = NDArray[Any]
NextBatch = Callable[[], tuple[Batch, float]]


class Replica:
    """One worker's copy of the model, and its way of keeping it near the servers'.

    Args:
        loss: (model, batch) → its mean loss.
        next_batch: returns a batch, and n_r/N, the part of the whole batch that it is.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        next_batch: NextBatch,
        *,
        n_fetch: int,
        n_push: int,
        local_lr: float,
        overlap: bool,
    ) -> None:
        self.world, self.model, self.loss, self.next_batch = world, model, loss, next_batch
        self.n_fetch, self.n_push, self.local_lr, self.overlap = n_fetch, n_push, local_lr, overlap
        self.flat = FlatBuffers(model)
        self._arriving = np.empty_like(self.flat.values_np)
        self._sum, self._leaving = np.zeros_like(self._arriving), np.zeros_like(self._arriving)
        self._fetch: Future[Start | None] | None = None  # the one on its way, if any
        self._push: Future[int | None] | None = None
        self._read = 0  # the fetch that this copy comes from
        self._oldest_read: int | None = None  # the fetch that the first gradient of the sum was computed at

    def work(self, kv: KVWorker) -> None:
        """Iterations, until there is no work left and every gradient has been pushed."""
        for iteration in count():
            if not self._refresh(kv, iteration):
                break
            self.world.begin_step(iteration)
            with self.world.compute("forward and backward"):
                loss, samples = self._iterate()
            if (iteration + 1) % self.n_push == 0:
                self._send_sum(kv, iteration)
            kv.report(iteration, loss, samples)
        if self._oldest_read is not None:
            self._send_sum(kv, iteration - 1)
        self._finish_push(kv)

    def _refresh(self, kv: KVWorker, iteration: int) -> bool:
        """Fetch if it is time, and let take effect what has arrived; False if there is no work left."""
        due = iteration % self.n_fetch == 0
        if self._fetch and (due or self._fetch.done()) and not self._take_fetched(kv):
            return False
        if due:
            self._fetch = kv.pull(self._arriving)
            if iteration == 0 or not self.overlap:
                return self._take_fetched(kv)
        return True

    def _take_fetched(self, kv: KVWorker) -> bool:
        assert self._fetch
        with self.world.trace.span("fetch", "communicate"):
            start: Start | None = kv.wait(self._fetch, "fetch")
        self._fetch = None
        if start is None:
            return False
        self._read = start.request_id
        self.flat.values_np[:] = self._arriving
        self.flat.values_from_host()
        return True

    def _iterate(self) -> tuple[float, int]:
        """Compute a gradient, for the servers and for the own copy; return the loss and the number of samples."""
        batch, share = self.next_batch()
        self.flat.zero_gradients()
        loss = self.loss(self.model, batch)
        loss.backward()
        self.flat.to_host()
        self._sum += share * self.flat.gradients_np
        if self._oldest_read is None:
            self._oldest_read = self._read
        with torch.no_grad():
            self.flat.values.add_(self.flat.gradients, alpha=-self.local_lr)
        return loss.item(), size(batch)

    def _send_sum(self, kv: KVWorker, clock: int, task: int = NO_TASK) -> None:
        """Push the gradients summed up so far; `clock` is the last one's iteration, `task` their task."""
        assert self._oldest_read is not None
        self._finish_push(kv)
        self._sum, self._leaving = self._leaving, self._sum
        self._sum.fill(0)
        self._push = kv.push(self._leaving, clock, share=1.0, read=self._oldest_read, task=task)
        self._oldest_read = None
        if not self.overlap:
            self._finish_push(kv)

    def _finish_push(self, kv: KVWorker) -> None:
        if self._push:
            with self.world.trace.span("push", "communicate"):
                kv.wait(self._push, "the answer to a push")
            self._push = None
