"""The key space: the assignment of parameters to servers.

Keys 0 … K − 1 are the elements of the flat parameter vector, or the rows of a table. They are cut
into ranges, far more than there are servers, and each range is given to one server as a whole: a
message then names one range instead of many keys (Li et al., OSDI 2014).

There are two assignments. *Equal*: server i of S has the i-th run of ranges. This is perfectly balanced, but one more
server shifts nearly every border, and about half of all keys move. *Hashing*: consistent
hashing (Karger et al., 1997; document 004). Servers and ranges are hashed onto one circle of 2⁶⁴
points, and a range belongs to the next server clockwise. A new server takes over the arcs that end
at its points and touches no others: about 1/S of the keys move, all of them to it. Each server
stands on the circle `virtual_nodes` times, V say; its share of the circle then varies by about
1/√V of itself.

Pure: no messages, no arrays. A look-up on the circle costs O(log(S·V)).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError

VIRTUAL_NODES = 64


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """The keys start … stop − 1; `len` is their number."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


# Each server's ranges, in ascending order; a server without any is there with an empty list.
Assignment = dict[int, list[KeyRange]]


def cut(keys: int, ranges: int) -> list[KeyRange]:
    """Return all keys in order, cut into `ranges` contiguous ranges whose lengths differ by at most one.

    No range is empty: fewer keys than `ranges` give one range per key.

    Raises:
        UsageError: no keys, or no ranges.
    """
    if keys < 1:
        raise UsageError(f"{keys} keys cannot be cut into ranges: there must be at least 1")
    if ranges < 1:
        raise UsageError(f"{keys} keys cannot be cut into {ranges} ranges: there must be at least 1")
    return [KeyRange(part.start, part.stop) for part in slices(equal_shares(keys, min(keys, ranges)))]


class HashRing:
    """Consistent hashing: the circle, and where each server stands on it. Immutable.

    Args:
        servers: their numbers; the order does not matter.
        virtual_nodes: how many points of the circle each server has.

    Raises:
        UsageError: no servers, one of them twice, or no virtual nodes.
    """

    def __init__(self, servers: Iterable[int], virtual_nodes: int = VIRTUAL_NODES) -> None:
        self.servers = tuple(sorted(servers))
        self.virtual_nodes = virtual_nodes
        if not self.servers:
            raise UsageError("a hash ring needs at least 1 server")
        if len(set(self.servers)) < len(self.servers):
            raise UsageError(f"servers {list(self.servers)}: each can be on a hash ring only once")
        if virtual_nodes < 1:
            raise UsageError(f"{virtual_nodes} virtual nodes: each server needs at least 1 point on the hash ring")
        nodes = [
            (_point(f"server {server}, node {i}"), server) for server in self.servers for i in range(virtual_nodes)
        ]
        nodes.sort()
        self._points = [point for point, _ in nodes]
        self._owners = [server for _, server in nodes]

    def server_of(self, key: int) -> int:
        """Return the server at the first point at or after the key's own, clockwise."""
        return self._owners[bisect_left(self._points, _point(f"key {key}")) % len(self._owners)]

    def with_server(self, server: int) -> HashRing:
        """Return a ring with `server` added: keys move to it, and nowhere else.

        Raises:
            UsageError: it is on the ring already.
        """
        return HashRing((*self.servers, server), self.virtual_nodes)


def assign_equally(ranges: Sequence[KeyRange], servers: Sequence[int]) -> Assignment:
    """Each server a contiguous run of `ranges`, whose numbers differ by at most one.

    Raises:
        UsageError: no servers, or one of them twice.
    """
    assignment = _nothing_yet(servers)
    if ranges:
        for server, run in zip(servers, cut(len(ranges), len(servers)), strict=False):  # servers may be left over
            assignment[server] = list(ranges[run.start : run.stop])
    return assignment


def assign_by_hashing(
    ranges: Sequence[KeyRange], servers: Sequence[int], virtual_nodes: int = VIRTUAL_NODES
) -> Assignment:
    """Each range to the server of its first key on the hash ring.

    Raises:
        UsageError: no servers, one of them twice, or no virtual nodes.
    """
    assignment = _nothing_yet(servers)
    ring = HashRing(servers, virtual_nodes)
    for part in ranges:
        assignment[ring.server_of(part.start)].append(part)
    return assignment


ASSIGNMENTS: dict[str, Callable[[Sequence[KeyRange], Sequence[int]], Assignment]] = {
    "equal": assign_equally,
    "hashing": assign_by_hashing,
}


def joined(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Return the same keys in as few ranges as possible; `ranges` in ascending order."""
    merged: list[KeyRange] = []
    for part in ranges:
        start = merged.pop().start if merged and merged[-1].stop == part.start else part.start
        merged.append(KeyRange(start, part.stop))
    return merged


def moved(before: Mapping[int, Sequence[KeyRange]], after: Mapping[int, Sequence[KeyRange]]) -> int:
    """Return the number of keys that are on another server `after` than `before`; the ranges need not be the same."""
    return _keys(before) - sum(_common(ranges, after.get(server, ())) for server, ranges in before.items())


def moves(
    before: Mapping[int, Sequence[KeyRange]], after: Mapping[int, Sequence[KeyRange]]
) -> dict[tuple[int, int], list[KeyRange]]:
    """Return (from, to) → the ranges that change servers, ascending; both assign the same non-empty ranges."""
    owner = {part: server for server, ranges in after.items() for part in ranges}
    moving: dict[tuple[int, int], list[KeyRange]] = {}
    for server, ranges in before.items():
        for part in ranges:
            if owner[part] != server:
                moving.setdefault((server, owner[part]), []).append(part)
    return moving


def imbalance(assignment: Mapping[int, Sequence[KeyRange]]) -> float:
    """The largest server's keys over the mean: 1 is perfect, 2 means that all wait for one that has twice its share."""
    largest = max(sum(map(len, ranges)) for ranges in assignment.values())
    return largest * len(assignment) / _keys(assignment)


def _point(name: str) -> int:
    # Python's own hash() of a text is another in every process; all ranks must agree.
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def _nothing_yet(servers: Sequence[int]) -> Assignment:
    if not servers or len(set(servers)) < len(servers):
        raise UsageError(f"servers {list(servers)}: there must be at least 1, each only once")
    return {server: [] for server in servers}


def _keys(assignment: Mapping[int, Sequence[KeyRange]]) -> int:
    return sum(len(part) for ranges in assignment.values() for part in ranges)


def _common(these: Sequence[KeyRange], those: Sequence[KeyRange]) -> int:
    """Return the number of keys in both of two ascending lists of ranges."""
    common = i = j = 0
    while i < len(these) and j < len(those):
        common += max(0, min(these[i].stop, those[j].stop) - max(these[i].start, those[j].start))
        if these[i].stop <= those[j].stop:
            i += 1
        else:
            j += 1
    return common
