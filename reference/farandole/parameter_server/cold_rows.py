"""Cold rows that several workers update: each is stored at one worker, and the workers exchange them in every step.

Document 000 keeps the hot parameters at the centre and all others with the clients (其他参数保存在各个客户端节点).
A cold row is stored at the worker that updates it most. In a step each worker i requests from each other worker j the
rows of its batch that are stored there, and sends j their gradients afterwards. j adds up all workers' gradients of its
rows and updates each row once, as a server would.

    pull   i → j   how many rows, and which       j → i   their values
    push   i → j   share · gradient of each, in the same order

All workers exchange at the same time, so they must run in step (`--sync bsp`).

Cost: 4R + 8KR bytes for R rows of K float32 of a batch that are stored at other workers, in 4 messages to each other
worker; nothing for rows that are stored at the worker itself. On a server all rows would cost 8R + 8KR.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.core.update_rules import Array, UpdateRule
from farandole.parameter_server.header import ROW_NUMBER
from farandole.runtime.communicator import Communicator

Rows = NDArray[np.int64]


class ColdRows:
    """One worker's part in the exchange of cold rows.

    Args:
        workers: the group of all workers, in order of their numbers.
        owner: for each row of the whole table, the number of the worker with which it lives.
        place: for each row, its index in that worker's `local`.
        local: the rows that live here; moved in place by `rule`.
    """

    def __init__(self, workers: Communicator, owner: Rows, place: Rows, local: Array, rule: UpdateRule) -> None:
        self.workers, self.owner, self.place, self.local, self.rule = workers, owner, place, local, rule
        self._others = [number for number in range(workers.size) if number != workers.rank]
        self._asked: list[NDArray[np.int32]] = []  # by each worker, from this one, in this step

    def pull(self, rows: Rows) -> Array:
        """Return the values of `rows`, wherever they live. Collective among the workers, as `push` is."""
        owners = self.owner[rows]
        wanted = [self.place[rows[owners == number]].astype(ROW_NUMBER) for number in range(self.workers.size)]
        self._asked = self._ask(wanted)
        values = np.empty((len(rows), *self.local.shape[1:]), self.local.dtype)
        coming = {number: np.empty_like(values[: len(wanted[number])]) for number in self._others}
        going = [(self.local[self._asked[number]], number) for number in self._others]
        self.workers.exchange_all(going, [(buffer, number) for number, buffer in coming.items()])
        coming[self.workers.rank] = self.local[wanted[self.workers.rank]]
        for number, part in coming.items():
            values[owners == number] = part
        return values

    def push(self, rows: Rows, gradients: Array) -> None:
        """Send the gradients of the last pull's `rows`, and update the rows that live here by those of all."""
        owners = self.owner[rows]
        coming = {number: np.empty_like(self.local, shape=self._shape(number)) for number in self._others}
        going = [(gradients[owners == number], number) for number in self._others]
        self.workers.exchange_all(going, [(buffer, number) for number, buffer in coming.items()])
        coming[self.workers.rank] = gradients[owners == self.workers.rank]
        touched, inverse = np.unique(np.concatenate(self._asked), return_inverse=True)
        total = np.zeros((len(touched), *self.local.shape[1:]), self.local.dtype)
        start = 0
        for number, asked in enumerate(self._asked):  # in a fixed order, so that a sum is reproducible
            total[inverse[start : start + len(asked)]] += coming[number]  # its rows are distinct
            start += len(asked)
        self.rule.begin()
        self.rule.apply(self.local, touched, total, 1.0)

    def _ask(self, wanted: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
        """Send each other worker the numbers of the rows wanted from it; return those that each wants from this one."""
        counts = {number: np.zeros(1, np.int64) for number in self._others}
        self.workers.exchange_all(
            [(np.array([len(wanted[number])]), number) for number in self._others],
            [(count, number) for number, count in counts.items()],
        )
        asked = {number: np.empty(int(counts[number][0]), ROW_NUMBER) for number in self._others}
        self.workers.exchange_all(
            [(wanted[number], number) for number in self._others],
            [(buffer, number) for number, buffer in asked.items()],
        )
        asked[self.workers.rank] = wanted[self.workers.rank]
        return [asked[number] for number in range(self.workers.size)]

    def _shape(self, number: int) -> tuple[int, ...]:
        return (len(self._asked[number]), *self.local.shape[1:])
