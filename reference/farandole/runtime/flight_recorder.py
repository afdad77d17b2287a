"""The position of each rank, readable after its death.

A rank killed by SIGKILL cannot report anything. Its current step and the rank it waits for are therefore kept in a
small memory-mapped file, which the launcher reads afterwards. Writing costs one store into memory.
"""

from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LAYOUT = struct.Struct("qqqq")  # step, what it does, the peer waited for, moves
NO_STEP = -1
GOES_ON, WAITS, WORKS_MEANWHILE = range(3)


@dataclass(frozen=True)
class Position:
    """Rank `rank` is at `step` (-1: before the first), and waits for `peer` (-1: all) if `waiting`.

    Attributes:
        moves: how many times it has begun a step, begun or ended a wait, or shown otherwise that it is alive.
        working: while it waits, it does work of its own.
    """

    rank: int
    step: int
    waiting: bool
    peer: int
    moves: int = 0
    working: bool = False


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
        self._does(WAITS)

    def works_meanwhile(self) -> None:
        """Note that the rank, while it waits, does work of its own, in which it may hang."""
        self._does(WORKS_MEANWHILE)

    def goes_on(self) -> None:
        self._does(GOES_ON)

    def moves(self) -> None:
        """Note that the rank is alive, though it neither begins nor ends a wait."""
        self._slots[3] += 1

    @property
    def position(self) -> Position:
        return _position(self._rank, *self._slots)

    def _does(self, what: int) -> None:
        self._slots[1] = what
        self._slots[3] += 1


def read_positions(folder: Path) -> list[Position]:
    """Return the last known position of every rank of a launch, in rank order."""
    positions = []
    for path in folder.glob("*.position"):
        with suppress(struct.error):  # the disk was full before the file was complete
            positions.append(_position(int(path.stem), *LAYOUT.unpack(path.read_bytes())))
    return sorted(positions, key=lambda position: position.rank)


def _position(rank: int, step: int, does: int, peer: int, moves: int) -> Position:
    return Position(rank, step, does != GOES_ON, peer, moves, does == WORKS_MEANWHILE)
