"""The results of a `Ledger`: the gradients that it keeps, and the events of workers, gradients and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(slots=True, eq=False)
class Gradient:
    """A gradient that has been pushed, as the ledger knows it.

    Attributes:
        content: the driver's: values, or whatever stands for them. The ledger never looks at it.
        requests: the driver's names of the requests that brought it.
        read_at: updates by others that the parameters contained at which it was computed.
        counted: whether it has moved the parameters already; a policy may use it again.
    """

    worker: int
    clock: int
    content: Any
    requests: list[Any]
    read_at: int = 0
    counted: bool = False


@dataclass(slots=True)
class Grant:
    """`worker` starts iteration `clock`, `lead` iterations ahead of the slowest, after it waited for `waited_s`."""

    worker: int
    clock: int
    lead: int
    waited_s: float
    request: Any


@dataclass(slots=True)
class Finished:
    """There is no work left for `worker`."""

    worker: int
    request: Any


class Part(NamedTuple):
    """A gradient's part of a move; `first`: it has not counted before."""

    gradient: Gradient
    weight: float
    staleness: int
    first: bool


@dataclass(slots=True)
class Move:
    """The parameters move by Σ weight · gradient, added up in the order of `parts`."""

    parts: list[Part]


@dataclass(slots=True)
class Dropped:
    """The gradient of `worker` is not needed (any more); `unused`: it has never counted."""

    worker: int
    requests: list[Any]
    unused: bool


Event = Grant | Finished | Move | Dropped
