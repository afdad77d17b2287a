"""One application: a model on the servers, and the group of workers that trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from farandole.compression.compressor import Compressor
from farandole.parameter_server.core.corrections import Correction
from farandole.parameter_server.core.policies import Policy
from farandole.parameter_server.core.update_rules import UpdateRule

Array = NDArray[Any]


@dataclass
class Application:
    """A model, its workers, and the way in which the servers move its parameters.

    Attributes:
        table: the parameters, (keys,) or (rows, width); the first worker's are the initial ones, on
            other ranks only shape and type count.
        clients: the ranks that the servers communicate with: the workers, or the aggregators before them.
        limit: the work, in steps if the policy works in rounds, else in gradients; None: unlimited.
        decoder: makes what the servers decode pushes with, the same for all applications; None: pushes are not encoded.
    """

    table: Array
    workers: tuple[int, ...]
    clients: tuple[int, ...]
    policy: Callable[[], Policy]
    rule: Callable[[Array], UpdateRule]
    correction: Callable[[], Correction | None]
    limit: int | None
    decoder: Callable[[], Compressor | None] = lambda: None
