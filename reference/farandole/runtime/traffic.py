"""The communication of ranks, for the trace: each message, and each collective as one operation.

A communicator logs a message when it hands it to MPI, and again at the receiver when it has arrived. An all-reduce,
all-gather or reduce-scatter is one operation of its group: the messages of its schedule are added up and not listed, so
that a ring of 64 ranks adds one row to the trace and not 252. The bytes of all sends and collectives of a rank are its
`bytes_sent`, without what is sent again after a loss.

Once the logs of all ranks are together, `numbered` gives both ends of a message the same number. MPI keeps the order of
messages with one tag between two ranks of a group, so the n-th that is sent is the n-th that is received.

Cost: about 0.7 µs a message, 0.3 µs within a collective, 1 µs a collective, and 230 bytes of memory a row until the
end of the run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Any, Literal, NamedTuple

CollectiveKind = Literal["all-reduce", "all-gather", "reduce-scatter"]
COLLECTIVES: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter")
SEND, RECEIVE = "send", "receive"
MESSAGE = "message"  # the category of these events in trace.json, and the name of their track
TRACK = 10  # "tid" of the main thread's operations in trace.json; other threads have the following ones


Group = tuple[tuple[int, ...], int]


class Operation(NamedTuple):
    """One message at one of its ends, or one rank's part in a collective.

    Attributes:
        start, end: in seconds; of a message both are when it was handed over, or had arrived.
        nbytes: payload that this rank has sent; of a receive, that it has received.
        size: of a collective, the bytes of the vector that each rank gives: with an all-gather, of its part.
        group: the members of the communicator, and how many of the same members this rank had joined before.
        peer: the other rank; −1 for a collective.
        place: of a message, how many with this tag have gone the same way before; after `numbered`, how many messages.
        thread: 0 for the main thread, and others in the order of their first message.
    """

    rank: int
    kind: str
    start: float
    end: float
    nbytes: int
    size: int
    group: Group
    peer: int = -1
    tag: int = 0
    place: int = -1
    thread: int = 0


GROUP = Operation._fields.index("group")


class Traffic:
    """The log of one rank, which its communicators share. Any thread may write to it."""

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._rows: list[tuple[str, float, float, int, int, int, int, int, int]] = []
        self._collectives: dict[int, list[int]] = {}  # thread → bytes of the collective that it is in
        self._main = get_ident()

    def join(self, members: Sequence[int]) -> int:
        """Return a number for a communicator of these ranks, which make theirs in the same order."""
        ranks = tuple(members)
        self._groups.append((ranks, sum(each == ranks for each, _ in self._groups)))
        return len(self._groups) - 1

    def sent(self, group: int, to: int, tag: int, nbytes: int) -> None:
        """Log a message that leaves now; `to` is a rank of the group."""
        thread = get_ident()
        if thread in self._collectives:
            self._collectives[thread][0] += nbytes
            return
        now = time.perf_counter()
        self._rows.append((SEND, now, now, group, to, tag, nbytes, 0, thread))

    def received(self, group: int, source: int, tag: int, nbytes: int) -> None:
        """Log a message that has arrived; `source` is a rank of the group."""
        thread = get_ident()
        if thread not in self._collectives:
            now = time.perf_counter()
            self._rows.append((RECEIVE, now, now, group, source, tag, nbytes, 0, thread))

    def collective(self, group: int, kind: CollectiveKind, size: int) -> AbstractContextManager[None]:
        """Log the messages of the body as one operation; within another one they belong to that."""
        return nullcontext() if get_ident() in self._collectives else _Collective(self, group, kind, size)

    def begin(self) -> None:
        """From now on the messages of this thread belong to one operation."""
        self._collectives[get_ident()] = [0]

    def end(self, group: int, kind: CollectiveKind, size: int, start: float) -> None:
        """Log the operation, which began at `start`."""
        thread = get_ident()
        [sent] = self._collectives.pop(thread)
        self._rows.append((kind, start, time.perf_counter(), group, -1, 0, sent, size, thread))

    def __len__(self) -> int:
        return len(self._rows)

    def operations(self, rank: int, first: int, last: int, offset: float = 0.0) -> list[Operation]:
        """Return rows `first` to `last` − 1, on the clock that is `offset` seconds ahead of this rank's."""
        found = []
        places: Counter[tuple[str, int, int, int]] = Counter()
        threads = {self._main: 0}
        for number, (kind, start, end, group, peer, tag, nbytes, size, ident) in enumerate(self._rows[:last]):
            thread = threads.setdefault(ident, len(threads))
            place = places[kind, group, peer, tag]
            places[kind, group, peer, tag] += 1
            if number >= first:
                ranks = self._groups[group]
                who = ranks[0][peer] if peer >= 0 else -1
                times = start + offset, end + offset
                found.append(Operation(rank, kind, *times, nbytes, size, ranks, who, tag, place, thread))
        return found


class Unlogged(Traffic):
    """Keeps nothing: the log of a communicator whose program writes no trace."""

    def sent(self, group: int, to: int, tag: int, nbytes: int) -> None:
        pass

    def received(self, group: int, source: int, tag: int, nbytes: int) -> None:
        pass

    def collective(self, group: int, kind: CollectiveKind, size: int) -> AbstractContextManager[None]:
        return nullcontext()


class _Collective:
    """The body of a collective operation. A class, as `wait.Wait` is one."""

    __slots__ = ("_about", "_log", "_start")

    def __init__(self, log: Traffic, group: int, kind: CollectiveKind, size: int) -> None:
        self._log = log
        self._about = group, kind, size

    def __enter__(self) -> None:
        self._log.begin()
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._log.end(*self._about, self._start)


def to_json(operations: Sequence[Operation]) -> str:
    """Operations as JSON, for the way from a rank to rank 0."""
    groups = numbers_of_groups(operations)
    rows = [(*each[:GROUP], groups[each.group], *each[GROUP + 1 :]) for each in operations]
    return json.dumps({"groups": list(groups), "rows": rows})


def from_json(text: str) -> list[Operation]:
    found = json.loads(text)
    groups = [(tuple(members), before) for members, before in found["groups"]]
    return [Operation._make((*row[:GROUP], groups[row[GROUP]], *row[GROUP + 1 :])) for row in found["rows"]]


def numbers_of_groups(operations: Iterable[Operation]) -> dict[Group, int]:
    """Return a number for each group, from 0."""
    return {group: number for number, group in enumerate(dict.fromkeys(each.group for each in operations))}


def numbered(operations: Iterable[Operation]) -> list[Operation]:
    """Let `place` be the message's number among all from its sender to its receiver, and the same at both ends.

    −1 is the number of a receive whose send is not among `operations`.

    Args:
        operations: of all ranks, each rank's in order.
    """
    operations = list(operations)
    counts: Counter[tuple[int, int]] = Counter()
    sends: dict[Any, tuple[int, int]] = {}
    for each in operations:
        if each.kind == SEND:
            way = each.rank, each.peer
            sends[way, each.group, each.tag, each.place] = counts[way], each.nbytes
            counts[way] += 1
    unknown = -1, 0
    found = []
    for each in operations:
        if each.kind == SEND:
            number, nbytes = sends[(each.rank, each.peer), each.group, each.tag, each.place]
        else:
            number, nbytes = sends.get(((each.peer, each.rank), each.group, each.tag, each.place), unknown)
        found.append(each._replace(place=number, nbytes=nbytes if number >= 0 else each.nbytes))
    return found


def events(operations: Sequence[Operation], groups: Mapping[Group, int], origin: float) -> list[dict[str, Any]]:
    """Return operations as events of a Chrome trace, in µs from `origin`.

    Args:
        groups: group → its number in the trace.
    """
    found: list[dict[str, Any]] = []
    for rank, thread in sorted({(each.rank, each.thread) for each in operations}):
        name = f"messages of thread {thread}" if thread else "messages"
        found.append({"ph": "M", "pid": rank, "tid": TRACK + thread, "name": "thread_name", "args": {"name": name}})
    for each in operations:
        name, about = each.kind, {"size": each.size, "group": groups[each.group]}
        if each.peer >= 0:
            name += f" {'to' if each.kind == SEND else 'from'} {each.peer}"
            about = {"peer": each.peer, "message": each.place}
        found.append(
            {
                "ph": "X",
                "pid": each.rank,
                "tid": TRACK + each.thread,
                "name": name,
                "cat": MESSAGE,
                "ts": round((each.start - origin) * 1e6, 3),
                "dur": round((each.end - each.start) * 1e6, 3),
                "args": {"operation": each.kind, "bytes": each.nbytes, **about},
            }
        )
    return found
