"""The project's own dispatch, in this lab's form: routing.py, plan.py, exchange.py and mixture.py of the experts' room.

There a token may have several experts, the all-to-all can be differentiated, and the experts learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def route(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    choice = odds.argmax(axis=1)
    return choice, odds[np.arange(len(odds)), choice]


def accept(choice: np.ndarray, before: np.ndarray, capacity: int) -> np.ndarray:
    chosen = choice[:, None] == np.arange(len(before))
    place = before + chosen.cumsum(axis=0)
    return place[np.arange(len(choice)), choice] <= capacity


def all_to_all(blocks: Sequence[np.ndarray], lengths: Sequence[int], comm: LabCommunicator) -> list[np.ndarray]:
    arrived = [np.empty((length, *blocks[0].shape[1:]), blocks[0].dtype) for length in lengths]
    arrived[comm.rank][...] = blocks[comm.rank]
    for distance in range(1, comm.size):
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        comm.exchange(blocks[to], to, arrived[source], source)
    return arrived


def mixture(
    x: np.ndarray,
    router: np.ndarray,
    experts: Sequence[Callable[[np.ndarray], np.ndarray]],
    capacity: int,
    comm: LabCommunicator,
) -> np.ndarray:
    choice, weight = route(x @ router)
    own = np.bincount(choice, minlength=router.shape[1])
    counts = np.concatenate(all_to_all([own[None]] * comm.size, [1] * comm.size, comm))
    before = counts.cumsum(axis=0) - counts

    accepted = np.flatnonzero(accept(choice, before[comm.rank], capacity))
    order = accepted[choice[accepted].argsort(kind="stable")]
    owner = choice[order] // len(experts)
    leaving = [x[order[owner == rank]] for rank in range(comm.size)]

    kept = np.clip(capacity - before, 0, counts)
    here = kept[:, comm.rank * len(experts) : (comm.rank + 1) * len(experts)]
    rows = np.concatenate(all_to_all(leaving, here.sum(axis=1), comm))
    expert_of = np.repeat(np.tile(np.arange(len(experts)), comm.size), here.ravel())
    answers = np.empty_like(rows)
    for number, expert in enumerate(experts):
        answers[expert_of == number] = expert(rows[expert_of == number])

    blocks = np.split(answers, here.sum(axis=1).cumsum()[:-1])
    back = np.concatenate(all_to_all(blocks, [len(block) for block in leaving], comm))
    y = np.zeros_like(x)
    y[order] = weight[order, None] * back
    return y
