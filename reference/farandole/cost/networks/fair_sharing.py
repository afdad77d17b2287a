"""Wires that messages share: max-min fair rates, and when each message has passed if all begin at once.

Max-min fair: no message can be given a higher rate without lowering one whose rate is the same or less. Progressive
filling finds these rates. Raise all rates together until a wire is full. Messages on that wire keep the rate; go on
with the others.

    a wire of capacity C, k messages that pass no other    C/k for each
    one of them can take only r < C/k elsewhere            r, and (C − r)/(k − 1) for the others

TCP flows with equal round-trip times share a network about like this, and flow-level simulators assume it. A message
that has passed frees its share, and the rates of the others are computed anew (a fluid model). No wire ever carries
more than its capacity, so no message ends before the bound of `wire_bound`: the fullest wire's bytes over its capacity.
Cost: O(messages × wires on a path) for each rate that differs, and that for each time at which messages end.

Sources: Bertsekas & Gallager, "Data networks", 1992, section 6.5.2. As a simulator's model: Casanova & Marchal, "A
network model for simulation of grid application", 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.cost.networks.network import Wire

Vector = NDArray[np.float64]
Numbers = NDArray[np.intp]
EQUAL = 1e-9  # shares and times that differ by less, relatively, are the same


@dataclass(frozen=True)
class Paths:
    """Which messages pass which wires: message `messages[i]` passes wire `wires[i]`.

    Attributes:
        count: the number of messages, each with one wire at least.
        capacities: of every wire.
        names: of every wire.
    """

    count: int
    messages: Numbers
    wires: Numbers
    capacities: Vector
    names: Sequence[str]

    @property
    def lengths(self) -> Numbers:
        """Return the number of wires of each message's path."""
        return np.bincount(self.messages, minlength=self.count)


def paths(routes: Sequence[Sequence[Wire]]) -> Paths:
    """Number the wires of these routes, one route for each message."""
    numbers: dict[Wire, int] = {}
    wires = [numbers.setdefault(wire, len(numbers)) for route in routes for wire in route]
    messages = np.repeat(np.arange(len(routes)), [len(route) for route in routes])
    capacities = np.array([capacity for _, capacity in numbers], dtype=float)
    return Paths(len(routes), messages, np.array(wires, dtype=np.intp), capacities, [name for name, _ in numbers])


def max_min_rates(given: Paths, active: NDArray[np.bool_] | None = None) -> Vector:
    """Return the max-min fair rate of each message; 0 for those that are not active."""
    rates, free = np.zeros(given.count), given.capacities.copy()
    messages, wires = given.messages, given.wires
    if active is not None:
        messages, wires = messages[active[messages]], wires[active[messages]]
    while len(messages):
        shares = _shares(free, wires)
        lowest = np.full(given.count, np.inf)  # the lowest share on each message's path
        np.minimum.at(lowest, messages, shares[wires])
        # A wire on whose messages no other wire has a lower share is full first, wherever else rates still rise.
        limits = np.full(len(free), np.inf)
        np.minimum.at(limits, wires, lowest[messages])
        full = limits >= shares * (1 - EQUAL)
        fixed = np.zeros(given.count, dtype=bool)
        fixed[messages[full[wires]]] = True
        rates[fixed] = lowest[fixed]
        settled = fixed[messages]
        free = np.maximum(free - np.bincount(wires[settled], rates[messages[settled]], len(free)), 0.0)
        messages, wires = messages[~settled], wires[~settled]
    return rates


def _shares(free: Vector, wires: Numbers) -> Vector:
    """Return what each wire has for each of its messages; infinitely much without any."""
    sharing = np.bincount(wires, minlength=len(free))
    shares: Vector = np.divide(free, sharing, out=np.full(len(free), np.inf), where=sharing > 0)
    return shares


def passing_times(given: Paths, amounts: Vector) -> Vector:
    """Return when each message has passed, if all begin at time 0 and `amounts` are what they carry."""
    left, times, now = np.array(amounts, dtype=float), np.zeros(given.count), 0.0
    active = left > 0
    while active.any():
        rates = max_min_rates(given, active)
        needed = np.full(given.count, np.inf)
        np.divide(left, rates, out=needed, where=active)
        first = needed.min()
        now += first
        ended = needed <= first * (1 + EQUAL)
        times[ended] = now
        left -= rates * first
        active &= ~ended
    return times


def loads(given: Paths, amounts: Vector) -> Vector:
    """Return for how long each wire would carry its part of `amounts` at full capacity."""
    carried = np.bincount(given.wires, np.asarray(amounts, float)[given.messages], len(given.capacities))
    seconds: Vector = carried / given.capacities
    return seconds


def wire_bound(given: Paths, amounts: Vector) -> float:
    """Return a lower bound for the time until all messages have passed, however they share."""
    return float(loads(given, amounts).max(initial=0.0))
