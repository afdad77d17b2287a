"""The key space and vector clocks of farandole/parameter_server/keys.py and core/clocks.py, in this lab's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from farandole.parameter_server import keys
from farandole.parameter_server.core.clocks import VectorClocks
from farandole.parameter_server.keys import HashRing

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator

PUSH, PULL, DONE = 0, 1, 2

__all__ = ["Client", "HashRing", "Store", "cut", "moving", "serve"]


def cut(number_of_keys: int, ranges: int) -> list[range]:
    return [range(part.start, part.stop) for part in keys.cut(number_of_keys, ranges)]


def moving(ranges: Sequence[range], servers: Sequence[int], new: int) -> list[int]:
    before = HashRing(servers)
    after = before.with_server(new)
    return [number for number, part in enumerate(ranges) if before.server_of(part.start) != after.server_of(part.start)]


class Store:
    def __init__(self, parts: dict[int, np.ndarray], rate: float) -> None:
        self.parts = parts
        self.rate = rate
        self.clocks = VectorClocks()

    def push(self, number: int, worker: int, clock: int, gradient: np.ndarray) -> bool:
        if self.clocks.seen(number, worker, clock):
            return False
        self.parts[number] -= self.rate * gradient
        self.clocks.note(number, worker, clock)
        return True

    def pull(self, number: int) -> np.ndarray:
        return self.parts[number].copy()


def serve(store: Store, ranges: Sequence[range], workers: Sequence[int], rounds: int, comm: LabCommunicator) -> None:
    request = np.empty(3, dtype=np.int64)
    for worker in list(workers) * rounds:
        while True:
            comm.receive(request, worker)
            kind, number, clock = request.tolist()
            if kind == DONE:
                break
            if kind == PUSH:
                gradient = np.empty(len(ranges[number]))
                comm.receive(gradient, worker)
                applied = store.push(number, worker, clock, gradient)
                comm.send(np.array([applied], dtype=np.int64), worker)
            else:
                comm.send(store.pull(number), worker)


class Client:
    def __init__(self, ranges: Sequence[range], holders: Sequence[int], comm: LabCommunicator) -> None:
        self.ranges, self.holders, self.comm = ranges, holders, comm

    def push(self, numbers: Sequence[int], clock: int, gradient: np.ndarray) -> int:
        applied = np.empty(1, dtype=np.int64)
        total = 0
        for number in numbers:
            part, server = self.ranges[number], self.holders[number]
            self.ask(server, PUSH, number, clock)
            self.comm.send(gradient[part.start : part.stop], server)
            self.comm.receive(applied, server)
            total += int(applied[0])
        return total

    def pull(self, numbers: Sequence[int], parameters: np.ndarray) -> None:
        for number in numbers:
            part, server = self.ranges[number], self.holders[number]
            self.ask(server, PULL, number)
            self.comm.receive(parameters[part.start : part.stop], server)

    def end_round(self) -> None:
        for server in sorted(set(self.holders)):
            self.ask(server, DONE)

    def ask(self, server: int, kind: int, number: int = 0, clock: int = 0) -> None:
        self.comm.send(np.array([kind, number, clock], dtype=np.int64), server)
