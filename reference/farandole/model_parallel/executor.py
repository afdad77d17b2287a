"""A pipeline schedule over MPI: computations become passes of a `Stage`, messages become messages.

Sends do not block: a stage sends its results and continues with its schedule, and the buffer lives until the message
has been received. All shapes are agreed once, before the first step, so no message carries one. A message's tag names
its virtual stage and micro-batch, so that several pieces on one rank receive only their own messages. On a GPU
activations pass through pinned host memory.

A waiting stage polls for a moment and then sleeps. MPI's own wait polls without pause; where ranks share cores, this
takes time from the stages that compute.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from farandole.model_parallel.stage import MicroBatches, Stage
from farandole.model_parallel.step_costs import duration
from farandole.model_parallel.steps import (
    NAMES,
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Pass,
    ReceiveActivation,
    ReceiveGradient,
    Schedule,
    SendActivation,
    SendGradient,
    Times,
    Update,
    with_messages,
)
from farandole.runtime.communicator import Buffer, Communicator
from farandole.runtime.devices import empty_on_host, on_host
from farandole.runtime.failure import PeerLost
from farandole.runtime.world import World

TAGS = 512  # micro-batches whose tags differ; those of equal tags do not overtake each other
POLLING_S = 100e-6  # so long a message is looked for without a pause …
NAP = 1 / 32  # … and then after each such part of the time waited so far, …
LONGEST_NAP_S = 500e-6  # … but not longer than this, by which a stage may be late


class Pipeline:
    """This rank's stage of a pipeline.

    Args:
        comm: the ranks of one pipeline, in order of stages.
        shapes: virtual stage → what its inputs look like, without the samples' axis.
        update: moves the parameters by the gradients.
        name: tells this pipeline from others that run side by side.
        pace: the minimum duration of a computation, in seconds, which makes the schedule visible on any machine.
    """

    def __init__(
        self,
        world: World,
        comm: Communicator,
        schedule: Schedule,
        stage: Stage,
        shapes: Mapping[int, tuple[int, ...]],
        dtype: torch.dtype,
        update: Callable[[], None],
        name: str = "pipeline",
        pace: Times | None = None,
    ) -> None:
        self.world, self.comm, self.schedule, self.stage = world, comm, schedule, stage
        self.shapes, self.dtype, self.update, self.name, self.pace = dict(shapes), dtype, update, name, pace
        self.runs = 0
        self._arrived: dict[tuple[int, int], Tensor] = {}  # (virtual stage, micro-batch) → inputs or gradient
        self._made: dict[tuple[int, int], Tensor] = {}  # the same, for the next virtual stage
        self._posted: deque[tuple[MPI.Request, Buffer]] = deque()

    def run(self, micro_batches: int, batches: MicroBatches) -> None:
        """Carry out this rank's part of the schedule. All ranks of the pipeline take part."""
        rank, size, placement = self.comm.rank, self.comm.size, self.schedule.placement
        self.runs += 1
        for step in with_messages(self.schedule.computations(rank, size, micro_batches), rank, size, placement):
            match step:
                case ReceiveActivation() | ReceiveGradient() if step.peer == rank:
                    pass  # this rank has the next piece, too, and sends nothing to itself
                case SendActivation() | SendGradient() if step.peer == rank:
                    own = step.virtual_stage, step.micro_batch
                    self._arrived[own] = self._made.pop(own)
                case ReceiveActivation() | ReceiveGradient():
                    self._receive(step, batches.rows(step.micro_batch))
                case SendActivation() | SendGradient():
                    self._send(step)
                case Update():
                    self.update()
                    self.stage.updated()
                case _:
                    self._compute(step, batches)
        with self.comm.waiting("the end of all sends", -1):
            for request, _ in self._posted:  # one by one: of several, MPI would not say why one has failed
                request.Wait()
        self._posted.clear()

    def abandon(self) -> None:
        """Cancel the pending messages of a revoked communicator, which no rank will receive.

        The buffers are freed only afterwards: MPI may read them until a send has ended, by an error too.
        """
        for request, _ in self._posted:
            with suppress(PeerLost), self.comm.waiting("the end of what is given up", -1):
                request.Wait()
        self._posted.clear()

    def _compute(self, step: Pass, batches: MicroBatches) -> None:
        if isinstance(step, Forward) and not self.schedule.flushes:
            self.world.begin_step(step.micro_batch)
        chunk = f", chunk {step.chunk}" if self.schedule.chunks > 1 else ""
        with self.world.compute(f"{NAMES[type(step)]} {step.micro_batch}{chunk}"):
            start = time.perf_counter()
            self._pass(step, batches)
            if self.pace:
                left = duration(step, self.pace, self.schedule.placement.passes) - (time.perf_counter() - start)
                time.sleep(max(0.0, left))

    def _pass(self, step: Pass, batches: MicroBatches) -> None:
        virtual = self.schedule.placement.virtual_stage(self.comm.rank, step.chunk, self.comm.size)
        micro_batch = step.micro_batch
        match step:
            case Forward():
                inputs = self._arrived.pop((virtual, micro_batch)) if virtual else batches.inputs(micro_batch)
                outputs = self.stage.forward(virtual, micro_batch, inputs, batches)
                if virtual < self.stage.last:
                    self._made[virtual + 1, micro_batch] = outputs
                else:  # outputs are the loss, and backward starts with its gradient with respect to itself
                    self._arrived[virtual, micro_batch] = torch.ones_like(outputs)
            case Backward() | BackwardInput():
                backward = self.stage.backward if isinstance(step, Backward) else self.stage.backward_input
                gradient = backward(virtual, micro_batch, self._arrived.pop((virtual, micro_batch)), batches)
                if virtual and gradient is not None:
                    self._made[virtual - 1, micro_batch] = gradient
            case BackwardWeight():
                self.stage.backward_weight(virtual, micro_batch)

    def _send(self, step: SendActivation | SendGradient) -> None:
        buffer: Buffer = on_host(self._made.pop((step.virtual_stage, step.micro_batch))).numpy()
        # Oldest first, and none twice: looking at a message that has not been taken may give the core away.
        while self._posted and self._posted[0][0].Test():
            self._posted.popleft()
        with self.world.trace.sending(f"send {_kind(step)} {step.micro_batch}", self._key(step)):
            if self.stage.versions_travel and isinstance(step, SendActivation):
                number = np.array([self.stage.version_to_send(step.micro_batch)])
                self._posted.append((self.comm.post(number, step.peer, self._tag(step)), number))
            self._posted.append((self.comm.post(buffer, step.peer, self._tag(step)), buffer))

    def _receive(self, step: ReceiveActivation | ReceiveGradient, rows: int) -> None:
        # A gradient looks like what the stage has sent on: the inputs of the next virtual stage.
        like = step.virtual_stage + isinstance(step, ReceiveGradient)
        tensor = empty_on_host((rows, *self.shapes[like]), self.dtype, self.world.device)
        what = f"{_kind(step)} {step.micro_batch}"
        with self.world.trace.receiving(f"receive {what}", self._key(step)), self.comm.waiting(what, step.peer):
            self._wait(step.peer, self._tag(step))
            if self.stage.versions_travel and isinstance(step, ReceiveActivation):
                number = np.empty(1, dtype=np.int64)
                self.comm.take(number, step.peer, self._tag(step))
                self.stage.version_received(step.micro_batch, int(number[0]))
            self.comm.take(tensor.numpy(), step.peer, self._tag(step))
        self._arrived[step.virtual_stage, step.micro_batch] = tensor.to(self.world.device)

    def _wait(self, peer: int, tag: int) -> None:
        """Return when the message can be taken."""
        start = time.perf_counter()
        while self.comm.arrived(tag, peer) is None:
            waited = time.perf_counter() - start
            if waited > POLLING_S:
                time.sleep(min(NAP * waited, LONGEST_NAP_S))

    def _tag(self, step: SendActivation | SendGradient | ReceiveActivation | ReceiveGradient) -> int:
        backward = isinstance(step, SendGradient | ReceiveGradient)
        return (step.micro_batch % TAGS * (self.stage.last + 1) + step.virtual_stage) * 2 + backward

    def _key(self, step: SendActivation | SendGradient | ReceiveActivation | ReceiveGradient) -> str:
        return f"{self.name}, run {self.runs}: {_kind(step)} {step.micro_batch} for {step.virtual_stage}"


def _kind(step: SendActivation | SendGradient | ReceiveActivation | ReceiveGradient) -> str:
    return "gradient" if isinstance(step, SendGradient | ReceiveGradient) else "activation"
