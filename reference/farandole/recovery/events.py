"""One line of the event log: what happened to a training, when, to which rank and at which step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, get_args

UNKNOWN = -1  # rank

What = Literal[
    "start", "first step", "checkpoint", "stop", "failure", "noticed", "departed", "retried", "enlarged", "undone",
    "asked for", "sent for", "joined",
]  # fmt: skip


@dataclass(frozen=True)
class Line:
    """`what` happened at time of day `when` (seconds since 1970).

    Attributes:
        rank: whose line it is; of a failure, the rank that failed.
        step: of the training; of a start, the step it begins with.
        kind: of a failure: kill, raise, hang, partition, or how it was noticed: lost, silent, or ended. Of "asked
            for", the request that is answered (`join_request`).
    """

    when: float
    what: What
    rank: int
    step: int
    kind: str = ""


def line_of(text: str) -> Line | None:
    """Return the line that `text` is; None: it is empty, torn by the end of its writer, or damaged."""
    try:
        line = Line(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = isinstance(line.when, int | float) and isinstance(line.rank, int) and isinstance(line.step, int)
    return line if numbers and line.what in get_args(What) and isinstance(line.kind, str) else None
