"""The vocabulary of pipeline schedules: the steps of a stage.

A batch is cut into micro-batches, a model into stages, one per rank; where a rank holds several pieces of the model,
each is a *chunk*, and the pieces are numbered as *virtual stages* along the model (`placement`). A schedule is a
generator that yields one stage's computations in order and knows nothing of tensors, MPI or time. It contains no
messages: `with_messages` inserts them. The result is run over MPI (`executor`), checked and timed without it
(`checker`), and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from farandole.model_parallel.placement import ONE_PIECE, Placement


@dataclass(frozen=True, slots=True)
class Forward:
    """Compute the outputs of a micro-batch, and keep what its backward pass will need."""

    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Backward:
    """Compute the gradients of inputs and of parameters, and forget the micro-batch."""

    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class BackwardInput:
    """The half of `Backward` that the previous stage waits for: the gradient of the inputs."""

    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class BackwardWeight:
    """The half of `Backward` that no stage waits for: the gradient of the parameters."""

    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """Move the parameters by the gradients since the last update.

    Attributes:
        batch: the number of the update; with a flush after each batch there is one, number 0.
    """

    batch: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """Outputs on their way forward or gradients on their way back.

    Attributes:
        virtual_stage: the virtual stage that will use them.
        peer: the stage (rank of the pipeline) they come from or go to.
    """

    micro_batch: int
    virtual_stage: int
    peer: int


class SendActivation(Message):
    """Send the outputs to the next virtual stage, without waiting."""


class ReceiveActivation(Message):
    """Wait for the outputs of the previous virtual stage."""


class SendGradient(Message):
    """Send the gradient of the inputs to the previous virtual stage, without waiting."""


class ReceiveGradient(Message):
    """Wait for the gradient of the outputs from the next virtual stage."""


Pass = Forward | Backward | BackwardInput | BackwardWeight
Computation = Pass | Update
Step = Computation | SendActivation | ReceiveActivation | SendGradient | ReceiveGradient

# As a trace names the passes, before the micro-batch's number.
NAMES: dict[type[Pass], str] = {
    Forward: "forward",
    Backward: "backward",
    BackwardInput: "backward (inputs)",
    BackwardWeight: "backward (weights)",
}


@dataclass(frozen=True)
class Times:
    """The times of a stage's work on one micro-batch, over all its chunks; in seconds or any unit."""

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0

    @property
    def backward(self) -> float:
        return self.backward_input + self.backward_weight

    @property
    def both(self) -> float:
        return self.forward + self.backward


@dataclass(frozen=True)
class Schedule:
    """A named pipeline schedule.

    Attributes:
        computations: (stage, stages, micro_batches) → that stage's computations, in order.
        placement: the pieces of the model on each stage.
        flushes: all gradients of a batch come before its one update; otherwise batches are not cut, and
            each has its own.
        halves: backward passes are taken in two halves.
    """

    name: str
    computations: Callable[[int, int, int], Iterator[Computation]]
    placement: Placement = ONE_PIECE
    flushes: bool = True
    halves: bool = False

    @property
    def chunks(self) -> int:
        """Return how many pieces of the model each stage holds."""
        return self.placement.chunks


def with_messages(
    computations: Iterable[Computation], stage: int, stages: int, placement: Placement = ONE_PIECE
) -> Iterator[Step]:
    """Yield the computations of one stage, each with the messages that it needs; some may be from a stage to itself."""
    last = placement.pieces(stages) - 1
    for step in computations:
        if isinstance(step, Update | BackwardWeight):
            yield step
            continue
        here = placement.virtual_stage(stage, step.chunk, stages)
        before, after = placement.holder(here - 1, step.chunk, stages), placement.holder(here + 1, step.chunk, stages)
        if isinstance(step, Forward):
            if here > 0:
                yield ReceiveActivation(step.micro_batch, here, before)
            yield step
            if here < last:
                yield SendActivation(step.micro_batch, here + 1, after)
        else:
            if here < last:
                yield ReceiveGradient(step.micro_batch, here, after)
            yield step
            if here > 0:
                yield SendGradient(step.micro_batch, here - 1, before)
