"""Background metrics (异步更新 in document 001): a thread adds up the losses during the training.

    main thread     step │ step │ … │ step │ step │ …         passes the losses to the thread, and continues
    second thread                   └ sum over all ranks, a line for each step

Document 001 calls it asynchronous update; the updates are not asynchronous, only their measurement is (erratum 001.14).
The numbers are those of `loss_log`, bit by bit, but they arrive later, and on every rank at another step. So no
decision that must be the same on all ranks may depend on them: a learning rate that follows the loss needs the exchange
between the steps.

Cost: the same two small all-reduces every `LOSS_WINDOW` steps, beside the computation. The thread polls them every
millisecond: a blocking call would occupy a core that ranks compute on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from mpi4py import MPI

from farandole.data_parallel.loss_log import LossLog, Observation
from farandole.runtime.communicator import Buffer
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

PAUSE_S = 0.001


class BackgroundLossLog(LossLog):
    """A loss log whose exchanges a thread makes; for a training in which no rank is lost or comes later."""

    def __init__(
        self, world: World, recorder: Recorder, steps: int, observe: Callable[[], Observation | None] = lambda: None
    ) -> None:
        super().__init__(world, recorder, steps, observe=observe)
        self._control = world.control.Dup()  # the thread's own: its messages meet no others
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._exchanges: list[Future[None]] = []

    def flush(self, following: int) -> None:
        """Let the thread write a line for each step before `following`; return at once."""
        steps = range(self.following, following)
        self.following = following
        work = self._thread.submit(self._exchange, steps, self._own(steps), self.observe(), self._all_reduce)
        self._exchanges.append(work)
        self._forget(following)

    def finish(self) -> None:
        """Return when all lines are written. Collective."""
        with self.world.comm.waiting("sum of losses", -1):
            for exchange in self._exchanges:
                exchange.result()
        self._thread.shutdown()
        self._control.Free()

    def _all_reduce(self, own: Buffer, result: Buffer, operation: MPI.Op) -> None:
        """In the thread."""
        request = self._control.Iallreduce(own, result, operation)
        while not request.Test():
            time.sleep(PAUSE_S)
