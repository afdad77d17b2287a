"""The clients: which samples each has, and which clients take part in a round.

Each client has its own samples, and the classes are divided unevenly (`data.label_skew`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.data.label_skew import Rows, divide
from farandole.errors import UsageError

ROUNDS, LOST = 2, 3  # what is drawn: each from random numbers of its own, beside those of `label_skew`


def possessions(classes: NDArray[np.int64], clients: int, concentration: float, seed: int) -> list[Rows]:
    """Return each client's samples, by their indices (`label_skew.divide`).

    Raises:
        UsageError: fewer samples than clients.
    """
    if not 1 <= clients <= len(classes):
        raise UsageError(f"--clients {clients}: must be from 1 to the {len(classes)} training samples")
    return divide(classes, clients, concentration, seed)


def participants(number: int, clients: int, count: int, seed: int) -> list[int]:
    """Return the clients that take part in round `number`: this many different ones, drawn at random."""
    drawn = np.random.default_rng([seed, ROUNDS, number]).choice(clients, size=count, replace=False)
    return sorted(drawn.tolist())


def survivors(number: int, taking_part: list[int], share: float, seed: int) -> list[int]:
    """Return the clients that remain at the end of the round; each is lost with the probability `share`."""
    lost = np.random.default_rng([seed, LOST, number]).random(len(taking_part)) < share
    return [client for client, gone in zip(taking_part, lost, strict=True) if not gone]


def host(client: int, ranks: int) -> int:
    """Return the rank that computes for a client."""
    return client % ranks
