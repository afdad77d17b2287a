"""The status of every rank of a lab's launch, readable by all ranks.

Each rank keeps one small memory-mapped file up to date: the call in which it waits, and the ranks it waits for.
Writing is a store into memory. From all files together a deadlock can be told from a long computation.
"""

from __future__ import annotations

import mmap
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LAYOUT = struct.Struct("qqq64s")  # changes so far, to, source, the call's name padded with zeros
NOBODY = -1
RETURNED = "returned"


@dataclass(frozen=True)
class RankStatus:
    """Rank `rank` is in `call` ("": it computes; "returned": its part is done).

    `to` and `source` are the ranks it waits for, -1 for none; `changes` counts its calls.
    """

    rank: int
    call: str
    to: int
    source: int
    changes: int

    @property
    def waits(self) -> bool:
        return self.call not in ("", RETURNED)

    def __str__(self) -> str:
        if self.call == RETURNED:
            return "has returned"
        if not self.call:
            return "computes"
        peers = [f"to rank {self.to}"] if self.to != NOBODY else []
        peers += [f"from rank {self.source}"] if self.source != NOBODY else []
        return f"waits in {self.call}" + (f" ({', '.join(peers)})" if peers else "")


class StatusFile:
    """One rank's entry, in a file of `folder`, or in memory alone when there is no folder."""

    def __init__(self, rank: int, folder: Path | None = None) -> None:
        self.rank = rank
        if folder is None:
            self._memory: bytearray | mmap.mmap = bytearray(LAYOUT.size)
        else:
            path = folder / f"{rank}.status"
            path.write_bytes(bytes(LAYOUT.size))
            with path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), LAYOUT.size)
        self._changes = 0

    @contextmanager
    def waiting(self, call: str, to: int = NOBODY, source: int = NOBODY) -> Iterator[None]:
        """The body is a wait in `call` for rank `to` to receive and for rank `source` to send."""
        self._write(call, to, source)
        try:
            yield
        finally:
            self.computes()

    def computes(self) -> None:
        self._write("", NOBODY, NOBODY)

    def returned(self) -> None:
        self._write(RETURNED, NOBODY, NOBODY)

    def _write(self, call: str, to: int, source: int) -> None:
        self._changes += 1
        LAYOUT.pack_into(self._memory, 0, self._changes, to, source, call.encode()[:64])


def read(folder: Path, size: int) -> list[RankStatus]:
    """Return every rank's status, in rank order; ranks that have not begun are left out."""
    statuses = []
    for rank in range(size):
        path = folder / f"{rank}.status"
        if path.exists() and len(entry := path.read_bytes()) == LAYOUT.size:
            changes, to, source, call = LAYOUT.unpack(entry)
            statuses.append(RankStatus(rank, call.rstrip(b"\0").decode(errors="replace"), to, source, changes))
    return statuses


def first_stuck(statuses: Sequence[RankStatus], size: int) -> int | None:
    """Return the first rank that waits while no rank computes; if it stays so, that is a deadlock."""
    if len(statuses) < size or any(not status.call for status in statuses):
        return None
    return next((status.rank for status in statuses if status.waits), None)


def describe(statuses: Sequence[RankStatus]) -> str:
    """Say in one line in which call each rank waits; ranks with the same status are named together."""
    calls = {status.call for status in statuses}
    all_ranks = named([status.rank for status in statuses])
    if len(statuses) > 1 and calls == {"send"}:
        return f"{all_ranks} all wait in send: no rank receives"
    if len(statuses) > 1 and calls == {"receive"}:
        return f"{all_ranks} all wait in receive: no rank sends"
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for status in statuses:
        groups[str(status)].append(status.rank)
    return "; ".join(f"{named(ranks)} {_plural(said) if len(ranks) > 1 else said}" for said, ranks in groups.items())


def named(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0 and 2", "ranks 0, 1 and 2"."""
    if not ranks:
        return "no rank"
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def _plural(said: str) -> str:
    for singular, plural in (("has ", "have "), ("waits ", "wait "), ("computes", "compute")):
        if said.startswith(singular):
            return plural + said.removeprefix(singular)
    return said
