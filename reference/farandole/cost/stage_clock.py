"""When each stage of a pipeline computes and sends, from the schedule's own steps: one pass over their order.

    Clock(division, messages, copies).step(pace)      one step of the training, all copies of the pipeline at once

`Messages` has the seconds of all messages, by stage and copy; `stage_messages` makes it, with or without a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from farandole.cost.division import Division
from farandole.cost.setting import Vector
from farandole.model_parallel.step_costs import duration
from farandole.model_parallel.step_order import SHIPMENTS, Sent, in_order
from farandole.model_parallel.steps import BackwardWeight, Computation, Forward, Times, Update

THIRDS = Times(1 / 3, 1 / 3, 1 / 3)  # of the computing of a step: forward, backward for inputs, for parameters
EXCHANGES = 2  # of a layer's tensor ranks in a pass forward, and in one backward

Seconds = Any  # of each copy of the pipeline, or one number for all


@dataclass(frozen=True)
class Passing:
    """The times of a message from one stage to the next.

    Attributes:
        busy: seconds for which it occupies the sender's link.
        late: seconds from then until it has arrived.
    """

    busy: Seconds
    late: Seconds


@dataclass(frozen=True)
class Exchanged:
    """The messages of a worker in one pass through a piece of the model.

    Attributes:
        waited_s: those for which the computation waits.
        beside_s: those that pass while it computes its attention.
        beside: the part of the pass during which they do.
    """

    waited_s: float
    beside_s: float = 0.0
    beside: float = 0.0


@dataclass(frozen=True)
class Messages:
    """The seconds of all messages.

    Attributes:
        border: of a message between two stages, where `unlike` has no other.
        exchange_s: of a layer's tensor ranks, one all-reduce.
        update_s: by stage, of the gradients of one worker, with its copies.
        unlike: of messages that share links.
        exchanged: stage, chunk, whether forward → of a pass, with the grid's six axes; it replaces `exchange_s`.
    """

    border: Passing
    exchange_s: float
    update_s: Sequence[float]
    unlike: Mapping[Sent, Passing] = field(default_factory=dict)
    exchanged: Mapping[tuple[int, int, bool], Exchanged] = field(default_factory=dict)

    @property
    def by_copy(self) -> bool:
        """Return whether some message takes longer in one copy of the pipeline than in another."""
        return any(isinstance(each, np.ndarray) for of in self.unlike.values() for each in (of.busy, of.late))

    def of(self, message: Sent) -> Passing:
        """Return what a message takes."""
        return self.unlike.get(message, self.border)


class Clock:
    """Until when each stage of each copy of the pipeline has worked.

    Args:
        copies: how many are followed. One is followed in plain numbers, which are faster than arrays of length 1.
        sends_block: a stage waits until its link has carried what it sends.

    Attributes:
        now: by stage, the seconds of each copy, or one number for all.
        exchanging_s: of a step's messages for which computations wait, by stage.
        uncovered_s: of all steps, stages and copies, for how long messages beside attention have taken longer than it.
    """

    def __init__(self, division: Division, takes: Messages, copies: int, sends_block: bool = False) -> None:
        self.takes, self.copies, self._sends_block = takes, copies, sends_block
        self.now: list[Seconds] = [0.0] * division.stages
        self._free: list[Seconds] = [0.0] * division.stages  # when the link has carried what was sent
        moves = list(program(division, takes.exchange_s, takes.exchanged))
        self._program = [(*each, takes.of(each.sent) if each.sent else takes.border) for each in moves]
        self.exchanging_s = [sum(e.exchange_s for e in moves if e.stage == s) for s in range(division.stages)]
        self.uncovered_s = 0.0

    @property
    def latest(self) -> float:
        """Return when the last stage of all is done."""
        return max(float(np.max(each)) for each in self.now)

    def step(self, pace: Vector) -> None:
        """Take one step of the training.

        Args:
            pace: the computing time of an average stage's step, of shape (stages, copies).
        """
        own: Any = pace[:, 0].tolist() if self.copies == 1 else pace
        later: Any = max if self.copies == 1 else np.maximum
        now, free = self.now, self._free
        arrivals: dict[Sent, Seconds] = {}
        for stage, part, exchange_s, sent, received, beside_s, beside, passing in self._program:
            if received:
                now[stage] = later(now[stage], arrivals.pop(received))
            elif sent:
                free[stage] = later(now[stage], free[stage]) + passing.busy
                arrivals[sent] = free[stage] + passing.late
                if self._sends_block:
                    now[stage] = free[stage]
            elif part:
                now[stage] = now[stage] + own[stage] * part + exchange_s
                if beside_s:
                    uncovered = later(0.0, beside_s - own[stage] * beside)
                    now[stage] = now[stage] + uncovered
                    self.uncovered_s += float(np.sum(uncovered))
            else:
                now[stage] = float(np.max(now[stage])) + self.takes.update_s[stage]


class Move(NamedTuple):
    """A pass, a message that is sent or received, or an update, which has none of these.

    Attributes:
        part: of the stage's computing.
        exchange_s: of messages for which the pass waits.
        beside_s, beside: as of `Exchanged`; the part is one of the stage's computing.
    """

    stage: int
    part: float = 0.0
    exchange_s: float = 0.0
    sent: Sent | None = None
    received: Sent | None = None
    beside_s: float = 0.0
    beside: float = 0.0


def program(
    division: Division, exchange_s: float, exchanged: Mapping[tuple[int, int, bool], Exchanged] | None = None
) -> Iterator[Move]:
    """Yield the moves of all stages, in order.

    Messages from a stage to itself take no time and are left out.

    Args:
        exchange_s, exchanged: as of `Messages`.
    """
    m = division.micro_batches
    for stage, step, message in in_order(division.schedule, division.stages, m):
        if isinstance(step, Update):
            yield Move(stage)
        elif isinstance(step, Computation):
            part = duration(step, THIRDS, 1) * division.share[stage][step.chunk] / m
            if exchanged:
                own = exchanged[stage, step.chunk, isinstance(step, Forward)]
                yield Move(stage, part, own.waited_s, beside_s=own.beside_s, beside=part * own.beside)
            else:
                exchanges = 0 if isinstance(step, BackwardWeight) else EXCHANGES * division.layers[stage][step.chunk]
                yield Move(stage, part, exchanges * exchange_s)
        elif message and message[-1] != message[-2]:
            is_sent = isinstance(step, SHIPMENTS)
            yield Move(stage, sent=message if is_sent else None, received=None if is_sent else message)
