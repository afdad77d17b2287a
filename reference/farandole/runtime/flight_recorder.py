"""Where each rank is, readable after its death.

A rank killed by SIGKILL says nothing. Its current step and what it waits for therefore stand in a
small memory-mapped file that outlives it and that the launcher reads afterwards. Writing costs
one store into memory.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

LAYOUT = struct.Struct("qqqq")  # step, 1 while waiting, the peer waited for, moves
NO_STEP = -1


@dataclass(frozen=True)
class Position:
    """Rank `rank` is at `step` (-1: before the first), and waits for `peer` (-1: all) if `waiting`.

    Attributes:
        moves: how many times it has begun a step, begun to wait or gone on.
    """

    rank: int
    step: int
    waiting: bool
    peer: int
    moves: int = 0


class FlightRecorder:
    """One rank's position, kept in `folder`, or in memory alone when there is no folder."""

    def __init__(self, rank: int, folder: Path | None) -> None:
        if folder is None:
            memory: bytearray | mmap.mmap = bytearray(LAYOUT.size)
        else:
            path = folder / f"{rank}.position"
            path.write_bytes(bytes(LAYOUT.size))
            with path.open("r+b") as file:
                memory = mmap.mmap(file.fileno(), LAYOUT.size)
        self._rank = rank
        self._slots = memoryview(memory).cast("q")
        self.step = NO_STEP

    @property
    def step(self) -> int:
        return self._slots[0]

    @step.setter
    def step(self, step: int) -> None:
        self._slots[0] = step
        self._slots[3] += 1

    def waits(self, peer: int) -> None:
        self._slots[2] = peer
        self._slots[1] = 1
        self._slots[3] += 1

    def goes_on(self) -> None:
        self._slots[1] = 0
        self._slots[3] += 1

    def moves(self) -> None:
        """It lives, though it neither begins to wait nor goes on."""
        self._slots[3] += 1

    @property
    def position(self) -> Position:
        step, waiting, peer, moves = self._slots
        return Position(self._rank, step, bool(waiting), peer, moves)


def read_positions(folder: Path) -> list[Position]:
    """The last known position of every rank of a launch, in rank order."""
    positions = []
    for path in folder.glob("*.position"):
        step, waiting, peer, moves = LAYOUT.unpack(path.read_bytes())
        positions.append(Position(int(path.stem), step, bool(waiting), peer, moves))
    return sorted(positions, key=lambda position: position.rank)
