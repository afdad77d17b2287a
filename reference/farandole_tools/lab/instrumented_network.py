"""A network so small that each gradient is seen coming: what lab 4 trains while its gradients travel.

Three branches stand side by side, each of two layers, and what comes out of them is added up:

           ┌── tanh(x·W + b)·W + b ──┐
       x ──┼── tanh(x·W + b)·W + b ──┼── + ── half the squared distance from the target
           └── tanh(x·W + b)·W + b ──┘

Backward goes through one branch after the other. None needs another's gradients, so nothing says which one comes first:
that may differ from rank to rank, as it does where several threads do the work. And a branch through which nothing went
forward gets no gradient at all, as in a network that sends each sample to some of its experts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from farandole.runtime.communicator import Buffer

BRANCHES = 3
INPUTS, HIDDEN, OUTPUTS = 4, 5, 3
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,))  # of a branch's parameters
RATE = 0.1


class Event(NamedTuple):
    """Something that has happened on a rank.

    Attributes:
        name: "gradient" (it is there), "begin" and "wait" (of a reduction), or "update".
        parameters: which ones it was about; all, for an update.
    """

    name: str
    parameters: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {numbers(self.parameters)}" if self.name != "update" else self.name


class Network:
    """One rank's copy.

    Attributes:
        lengths: elements of each parameter, in the model's order: a branch has four, W, b, W, b.
        places: where each of them lies in the two vectors that follow.
        values, gradients: all parameters, and all gradients, each in one vector.
        route: the branches in the order in which backward goes through them; one that is missing is not used.
        events: what has happened so far, in order.
    """

    def __init__(self) -> None:
        shapes = SHAPES * BRANCHES
        self.lengths = [int(np.prod(shape)) for shape in shapes]
        self.places = [slice(*ends) for ends in pairwise([0, *accumulate(self.lengths)])]
        self.values = np.random.default_rng(4).normal(size=sum(self.lengths)) / 2
        self.gradients = np.zeros_like(self.values)
        self.route: Sequence[int] = tuple(reversed(range(BRANCHES)))
        self.events: list[Event] = []
        self._shapes = shapes

    def backward(self, samples: Sequence[int], is_there: Callable[[int], object]) -> None:
        """Forward and backward: put the gradient of the mean loss over `samples` into `gradients`.

        Args:
            is_there: called with a parameter's number as soon as its gradient is in its place, while those of others
                have still to be computed. Not called for a parameter that is not used: its gradient is 0.
        """
        for number, gradient in self._computed(samples):
            self.gradients[self.places[number]] = gradient.reshape(-1)
            self.events.append(Event("gradient", (number,)))
            is_there(number)

    def update(self) -> None:
        """Move all parameters against what is in `gradients`, and set that to 0."""
        self.events.append(Event("update", tuple(range(len(self.lengths)))))
        self.values -= RATE * self.gradients
        self.gradients[:] = 0

    def _computed(self, samples: Sequence[int]) -> Iterator[tuple[int, Buffer]]:
        """Each gradient when it is computed, with its parameter's number."""
        x, target = data(samples)
        inner = {branch: np.tanh(x @ self._value(branch, 0) + self._value(branch, 1)) for branch in self.route}
        y = sum((inner[branch] @ self._value(branch, 2) + self._value(branch, 3) for branch in self.route), 0 * target)
        slope = (y - target) / max(1, len(samples))
        for branch in self.route:
            first = branch * len(SHAPES)
            yield first + 3, slope.sum(axis=0)
            yield first + 2, inner[branch].T @ slope
            bent = slope @ self._value(branch, 2).T * (1 - inner[branch] ** 2)
            yield first + 1, bent.sum(axis=0)
            yield first, x.T @ bent

    def _value(self, branch: int, part: int) -> Buffer:
        number = branch * len(SHAPES) + part
        return self.values[self.places[number]].reshape(self._shapes[number])


def data(samples: Sequence[int]) -> tuple[Buffer, Buffer]:
    """Return the inputs and the targets of these samples, with no two alike."""
    drawn = [np.random.default_rng(sample).normal(size=INPUTS + OUTPUTS) for sample in samples]
    both = np.array(drawn).reshape(len(samples), INPUTS + OUTPUTS)
    return both[:, :INPUTS], both[:, INPUTS:]


def numbers(parameters: Sequence[int]) -> str:
    """ "3", or "3 to 5" for what follows one another, or "3 and 5"."""
    found = sorted(parameters)
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]} to {found[-1]}"
    *others, last = map(str, found)
    return f"{', '.join(others)} and {last}" if others else last


def told(parameters: Sequence[int]) -> str:
    """ "parameter 3", "parameters 3 to 5", "no parameter"."""
    if not parameters:
        return "no parameter"
    return f"parameter{'s' * (len(parameters) > 1)} {numbers(parameters)}"
